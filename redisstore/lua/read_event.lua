-- Returns what is kept of an event, and the consumer that brings it. ARGV[9] id of the event.
-- Returns nothing if there is no such event, otherwise { event as JSON, stream, status, attempts, consumer, place, last,
-- delivered, error, code, and of the consumer: state, sent, attempt, due, place }. The state is "" if the consumer is
-- gone. O(1).
local r = redis.call('HMGET', P .. 'event:' .. ARGV[A], 'event', 'stream', 'status', 'attempts', 'consumer', 'at', 'last',
  'delivered', 'error', 'code')
if not r[1] or tonumber(redis.call('ZSCORE', P .. 'expire', ARGV[A]) or now + 1) <= now then return unchanged({}) end
local c = r[5] ~= '' and record(r[5])
local of = c and { c.state, int(c.sent), int(c.attempt), int(c.due), place_in_stream(c.id, c.primary) } or { '', '0', '0', '0', '' }
for i = 1, 5 do r[10 + i] = of[i] end
return unchanged(r)
