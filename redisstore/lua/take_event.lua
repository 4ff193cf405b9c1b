-- An attempt is about to send an event.
-- ARGV[5] consumer  ARGV[6] epoch  ARGV[7] wake id  ARGV[8] handed  ARGV[9] id of the event  ARGV[10] the event as
-- JSON, without its payload  ARGV[11] its fsm.OutboxPlace  ARGV[12] its provider  ARGV[13] its Retention, ms.
-- ARGV[14] its DeliverAt, 0 for none  ARGV[15] its stream  ARGV[16] 1 if it is a replay  ARGV[17] 1 if it was released.
-- ARGV[18] 1 if its idempotency key is kept (keep_key.lua).
-- Returns 1 if the event is to be sent (spec.TakeEvent), 0 if not, or -1 if its key must be kept first. O(log n).
local c, id = current(record, ARGV[A], ARGV[A + 1], ARGV[A + 2]), ARGV[A + 4]
if not c or not attempt_out(c, ARGV[A + 3]) then return reply('0') end
forget_expired(id)
local key, place = P .. 'event:' .. id, place_in_stream(c)
local replays, released = ARGV[A + 11] == '1', ARGV[A + 12] == '1'
local status, by, from, delivered_at, placed, begins =
  unpack(redis.call('HMGET', key, 'status', 'consumer', 'at', 'delivered', 'placed', 'deliver_at'))
if status == 'expired' then
  if ARGV[A + 6] <= placed and (not replays or delivered_at == '0') then return reply('0') end
  status = false
end
local is_over = status == 'delivered' or status == 'dead_letter'
local rival = status == 'delivering' and (by ~= c.id or from ~= place) and peek(by)
local elsewhere = rival and place_in_stream(rival) == from
local fresh = not status
if fresh then
  status, begins = 'pending', ARGV[A + 9]
  local since = math.max(tonumber(ARGV[A + 8]), FSM.OUTBOX_RETENTION)
  if begins_at(ARGV[A + 6], begins) <= now - since and not replays then return reply('0') end
  if is_removing(ARGV[A + 10]) then return reply('0') end
elseif is_over and not replays or status == 'cancelled' or elsewhere then
  return reply('0')
end
local early = status == 'pending' and not released and tonumber(begins or '0') > now
if replays and begins and (early or is_over and from ~= place) then return reply('0') end
if fresh and ARGV[A + 13] == '0' then return reply('-1') end
if fresh then keep_event(id, ARGV[A + 5], ARGV[A + 6], ARGV[A + 7], ARGV[A + 8], begins, ARGV[A + 10], '', '') end
redis.call('HSET', key, 'consumer', c.id, 'at', place)
if early then
  redis.call('ZADD', P .. 'delayed', begins, id)
  return reply('0')
end
if begins then redis.call('ZREM', P .. 'delayed', id) end
event_is(id, status, 'delivering')
return reply('1')
