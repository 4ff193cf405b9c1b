-- Reserves an idempotency key for an event that is to be handed over.
-- event: its id  asked: what the client asks for, as JSON  ttl: how long the key is kept if the event is never handed
-- over, ms.
-- Returns { id of the event that has the key, what was asked for, 1 if it is this event and nobody had the key before,
-- otherwise 0 }. O(1).
local key, event, asked, ttl = unpack(ARGV, A)
key = P .. 'key:' .. key
local id, was_asked = unpack(redis.call('HMGET', key, 'id', 'asked'))
if id then return reply(id, was_asked, '0') end
redis.call('HSET', key, 'id', event, 'asked', asked)
redis.call('PEXPIRE', key, ttl)
return reply(event, asked, '1')
