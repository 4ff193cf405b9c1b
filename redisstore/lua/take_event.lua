-- An attempt is about to send an event.
-- event: its id  text: the event as JSON, without its payload  placed: its fsm.OutboxPlace  retention: ms.
-- deliver_at: 0 for none  key_kept: 1 if its idempotency key is kept (keep_key.lua).
-- Returns 1 if the event is to be sent (spec.TakeEvent), 0 if not, or -1 if its key must be kept first. O(log n).
local consumer, epoch, wake, handed, event, text, placed, provider, retention, deliver_at, path, replay, released,
  key_kept = unpack(ARGV, A)
replay, released = replay == '1', released == '1'
local c = current(record, consumer, epoch, wake)
if not c or not attempt_out(c, handed) then return reply('0') end
forget_expired(event)
local key, place = P .. 'event:' .. event, place_in_stream(c)
local status, by, from, delivered_at, was_placed, begins =
  unpack(redis.call('HMGET', key, 'status', 'consumer', 'at', 'delivered', 'placed', 'deliver_at'))
if status == 'expired' then
  if placed <= was_placed and (not replay or delivered_at == '0') then return reply('0') end
  status = false
end
local is_over = status == 'delivered' or status == 'dead_letter'
local rival = status == 'delivering' and (by ~= c.id or from ~= place) and peek(by)
local elsewhere = rival and place_in_stream(rival) == from
local fresh = not status
if fresh then
  status, begins = 'pending', deliver_at
  local since = math.max(tonumber(retention), FSM.OUTBOX_RETENTION)
  if begins_at(placed, begins) <= now() - since and not replay then return reply('0') end
  if is_removing(path) then return reply('0') end
elseif is_over and not replay or status == 'cancelled' or elsewhere then
  return reply('0')
end
local early = status == 'pending' and not released and tonumber(begins or '0') > now()
if replay and begins and (early or is_over and from ~= place) then return reply('0') end
if fresh and key_kept == '0' then return reply('-1') end
if fresh then keep_event(event, text, placed, provider, retention, begins, path, '', '') end
redis.call('HSET', key, 'consumer', c.id, 'at', place)
if early then
  redis.call('ZADD', P .. 'delayed', begins, event)
  return reply('0')
end
if begins then redis.call('ZREM', P .. 'delayed', event) end
event_is(event, status, 'delivering')
return reply('1')
