-- Takes in that the time of a delayed event has come (spec.ReleaseEvent).
-- event: its id  lost: why its payload is lost, "" if it is not: then the event lies in its stream again.
-- Returns 1 if the event was delayed, otherwise 0. O(log n).
local event, lost = unpack(ARGV, A)
if redis.call('ZREM', P .. 'delayed', event) == 0 then return reply('0') end
if lost ~= '' and redis.call('HGET', P .. 'event:' .. event, 'status') == 'pending' then
  redis.call('HSET', P .. 'event:' .. event, 'error', lost)
  event_is(event, 'pending', 'dead_letter')
end
return reply('1')
