-- Cancels an event (spec.CancelEvent). event: its id.
-- Returns 1 if it is cancelled, otherwise 0. O(log n).
local event = ARGV[A]
forget_expired(event)
local status, by, at, delivered_at =
  unpack(redis.call('HMGET', P .. 'event:' .. event, 'status', 'consumer', 'at', 'delivered'))
if status == 'cancelled' then return reply('1') end
if status == 'expired' then return reply('0') end
local under_way = status == 'delivering' and event_status(status, by, at, delivered_at) == 'delivering'
if not status or under_way or delivered_at ~= '0' then return reply('0') end
redis.call('ZREM', P .. 'delayed', event)
event_is(event, status, 'cancelled')
expire_event(event)
return reply('1')
