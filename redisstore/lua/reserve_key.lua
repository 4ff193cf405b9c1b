-- Reserves an idempotency key for an event that is to be handed over.
-- ARGV[5] key  ARGV[6] id of the event  ARGV[7] what the client asks for, as JSON  ARGV[8] how long the key is kept if
-- the event is never handed over, ms.
-- Returns { id of the event that has the key, what was asked for, 1 if it is the one of ARGV[6] and nobody had the key
-- before, otherwise 0 }. O(1).
local key = P .. 'key:' .. ARGV[A]
local id, asked = unpack(redis.call('HMGET', key, 'id', 'asked'))
if id then return reply({ id, asked, '0' }) end
redis.call('HSET', key, 'id', ARGV[A + 1], 'asked', ARGV[A + 2])
redis.call('PEXPIRE', key, ARGV[A + 3])
return reply({ ARGV[A + 1], ARGV[A + 2], '1' })
