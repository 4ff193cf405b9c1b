-- Returns the id of the event that has an idempotency key, "" if there is none. ARGV[5] key. O(1).
return reply(redis.call('HGET', P .. 'key:' .. ARGV[A], 'id') or '')
