-- Drops the idempotency key of an event. ARGV[5] key  ARGV[6] id of the event.
-- Returns 1 if that was the key's event, otherwise 0. O(1).
local key = P .. 'key:' .. ARGV[A]
if redis.call('HGET', key, 'id') ~= ARGV[A + 1] then return reply('0') end
redis.call('DEL', key)
return reply('1')
