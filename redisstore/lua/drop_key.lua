-- Drops the idempotency key of an event. event: its id.
-- Returns 1 if that was the key's event, otherwise 0. O(1).
local key, event = unpack(ARGV, A)
key = P .. 'key:' .. key
if redis.call('HGET', key, 'id') ~= event then return reply('0') end
redis.call('DEL', key)
return reply('1')
