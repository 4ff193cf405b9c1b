-- Returns what is kept of some events, and the consumers that bring them.
-- ARGV[5] a stream that an event is about to be handed over to, or ""  ARGV[6…] ids of the events.
-- Returns { of that stream: how many events of its partition are not over, how many are dead, 1 if it is being removed; of each
-- event: nothing if there is none, otherwise { event as JSON, stream, status, attempts, consumer, place, last, delivered, error,
-- code, attempts a line each, until when it is delayed in ms or 0, when it expires in ms or 0, and of the consumer: state, sent,
-- attempt, due, place }, … }. The state is "" if the consumer is gone. O(events).
local found = { '0', '0', '0' }
if ARGV[A] ~= '' then
  found = { redis.call('ZCARD', P .. 'events:open'), redis.call('ZCARD', events_of('dead_letter')), is_removing(ARGV[A]) and '1' or '0' }
end
for i = A + 1, #ARGV do
  local r = redis.call('HMGET', P .. 'event:' .. ARGV[i], 'event', 'stream', 'status', 'attempts', 'consumer', 'at', 'last',
    'delivered', 'error', 'code', 'tries', 'deliver_at')
  r[11] = r[11] or ''
  r[12] = r[12] and redis.call('ZSCORE', P .. 'delayed', ARGV[i]) or '0'
  r[13] = redis.call('ZSCORE', P .. 'expire', ARGV[i]) or '0'
  local c = r[1] and r[5] ~= '' and record(r[5])
  local of = c and { c.state, int(c.sent), int(c.attempt), int(c.due), place_in_stream(c) } or { '', '0', '0', '0', '' }
  for k = 1, 5 do r[13 + k] = of[k] end
  found[#found + 1] = r[1] and (r[13] == '0' or tonumber(r[13]) > now) and r or {}
end
return reply(found)
