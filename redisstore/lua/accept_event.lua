-- Takes in that an event lies in its stream, so that it is delivered from now on.
-- ARGV[9] id of the event  ARGV[10] the event as JSON, without its payload  ARGV[11] its stream  ARGV[12] the consumer.
-- Returns 1, or 0 if the event is kept already: it stays as it is. O(1).
local id, consumer = ARGV[A], ARGV[A + 3]
forget_expired(id)
if redis.call('EXISTS', P .. 'event:' .. id) == 1 then return unchanged('0') end
local there = redis.call('EXISTS', P .. 'c:' .. consumer) == 1
keep_event(id, ARGV[A + 1], ARGV[A + 2], there and consumer or '', there and place_in_stream(consumer, ARGV[A + 2]) or '')
return unchanged('1')
