-- Takes in that an event lies in its stream, so that it is delivered from now on.
-- ARGV[5] id of the event  ARGV[6] the event as JSON, without its payload  ARGV[7] its fsm.OutboxPlace.
-- ARGV[8] its provider  ARGV[9] its Retention, ms  ARGV[10] its DeliverAt, 0 for none  ARGV[11] its stream.
-- ARGV[12] the consumer.
-- Returns 1, 0 if the event is kept already: it stays as it is, or -1 if its stream is being removed. O(log n).
local id, stream, consumer = ARGV[A], ARGV[A + 6], ARGV[A + 7]
forget_expired(id)
local status = redis.call('HGET', P .. 'event:' .. id, 'status')
if status and status ~= 'expired' then
  count_in_stream(id, stream)
  return reply('0')
end
if is_removing(stream) then return reply('-1') end
local c = peek(consumer)
local by, place = c and consumer or '', c and place_in_stream(c) or ''
keep_event(id, ARGV[A + 1], ARGV[A + 2], ARGV[A + 3], ARGV[A + 4], ARGV[A + 5], stream, by, place)
return reply('1')
