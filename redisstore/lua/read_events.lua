-- Returns what is kept of some events, and the consumers that bring them. ARGV[9…] ids of the events.
-- Returns { of each event: nothing if there is none, otherwise { event as JSON, stream, status, attempts, consumer, place,
-- last, delivered, error, code, when it expires in ms or 0, attempts a line each, and of the consumer: state, sent, attempt, due, place }, … }.
-- The state is "" if the consumer is gone. O(events).
local found = {}
for i = A, #ARGV do
  local r = redis.call('HMGET', P .. 'event:' .. ARGV[i], 'event', 'stream', 'status', 'attempts', 'consumer', 'at', 'last',
    'delivered', 'error', 'code')
  r[11] = redis.call('ZSCORE', P .. 'expire', ARGV[i]) or '0'
  r[12] = redis.call('HGET', P .. 'event:' .. ARGV[i], 'tries') or ''
  local c = r[1] and r[5] ~= '' and record(r[5])
  local of = c and { c.state, int(c.sent), int(c.attempt), int(c.due), place_in_stream(c.id, c.primary) } or { '', '0', '0', '0', '' }
  for k = 1, 5 do r[12 + k] = of[k] end
  found[#found + 1] = r[1] and (r[11] == '0' or tonumber(r[11]) > now) and r or {}
end
return unchanged(found)
