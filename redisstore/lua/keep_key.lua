-- Keeps an idempotency key as long as its event (expired_events.lua). event: its id.
-- Returns 1 if that is the key's event, otherwise 0. O(1).
local key, event = unpack(ARGV, A)
key = P .. 'key:' .. key
if redis.call('HGET', key, 'id') ~= event then return reply('0') end
redis.call('PERSIST', key)
return reply('1')
