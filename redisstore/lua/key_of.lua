-- Returns the id of the event that has an idempotency key, "" if there is none. O(1).
local key = ARGV[A]
return reply(redis.call('HGET', P .. 'key:' .. key, 'id') or '')
