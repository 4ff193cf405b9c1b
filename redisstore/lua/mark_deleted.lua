-- Marks a subscription's generation as deleted, so that its consumers are gone at once for every other script, and notes that they
-- are yet to be removed (drop.lua). Marks older than a day are cleared away: no replica acts on a list of subscriptions that old.
-- ARGV[9] subscription  ARGV[10] generation
-- Returns how many consumers are yet to be removed. O(log marks).
local sub, gen = ARGV[A], ARGV[A + 1]
touched = true
redis.call('ZREMRANGEBYSCORE', P .. 'dead', '-inf', now - 86400000)
redis.call('ZADD', P .. 'dead', now, gen)
local left = redis.call('SCARD', P .. 'b:' .. sub .. ':' .. gen)
if left > 0 then redis.call('HSET', P .. 'dropping', gen, sub) end
return reply(left)
