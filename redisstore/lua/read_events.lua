-- Returns what is kept of some events, and the consumers that bring them.
-- path: of a stream that an event is about to be handed over to, or "". Then follow the ids of the events.
-- Returns { open, dead, removing, event, … }. `open` and `dead` are how many events of that stream's partition are
-- not over, and are dead. `removing` is 1 if the stream is being removed. All three are 0 without a stream.
-- An event is { event as JSON, stream, status, attempts, consumer, place, last, delivered, error, code, tries, delayed,
-- expires, state, sent, attempt, due, place }. It is {} if there is none. `tries` are its attempts, a line each.
-- `delayed` is until when it is delayed, and `expires` when it goes, ms, 0 for none. The last five are of the consumer.
-- Its state is "" if it is gone. O(events).
local path = ARGV[A]
local found = { '0', '0', '0' }
if path ~= '' then
  found = {
    redis.call('ZCARD', P .. 'events:open'), redis.call('ZCARD', events_of('dead_letter')),
    is_removing(path) and '1' or '0',
  }
end
for i = A + 1, #ARGV do
  local event = ARGV[i]
  local r = redis.call('HMGET', P .. 'event:' .. event, 'event', 'stream', 'status', 'attempts', 'consumer', 'at',
    'last', 'delivered', 'error', 'code', 'tries', 'deliver_at')
  r[11] = r[11] or ''
  r[12] = r[12] and redis.call('ZSCORE', P .. 'delayed', event) or '0'
  r[13] = redis.call('ZSCORE', P .. 'expire', event) or '0'
  local c = r[1] and r[5] ~= '' and record(r[5])
  local of = c and { c.state, int(c.sent), int(c.attempt), int(c.due), place_in_stream(c) } or { '', '0', '0', '0', '' }
  for k = 1, 5 do r[13 + k] = of[k] end
  found[#found + 1] = r[1] and (r[13] == '0' or tonumber(r[13]) > now()) and r or {}
end
return reply(found)
