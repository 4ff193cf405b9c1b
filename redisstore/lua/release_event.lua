-- Takes in that the time of a delayed event has come (spec.ReleaseEvent).
-- ARGV[5] id of the event  ARGV[6] why its payload is lost, "" if it is not: then the event lies in its stream again.
-- Returns 1 if the event was delayed, otherwise 0. O(log n).
local id, lost = ARGV[A], ARGV[A + 1]
if redis.call('ZREM', P .. 'delayed', id) == 0 then return reply('0') end
if lost ~= '' and redis.call('HGET', P .. 'event:' .. id, 'status') == 'pending' then
  redis.call('HSET', P .. 'event:' .. id, 'error', lost)
  event_is(id, 'pending', 'dead_letter')
end
return reply('1')
