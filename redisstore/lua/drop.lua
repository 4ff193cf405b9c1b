-- Marks a subscription's generation as deleted, so that its consumers are gone at once for every other script, and
-- removes a batch of them. Call again until nothing is left. Marks older than a day are cleared away: no replica acts on
-- a list of subscriptions that old.
-- ARGV[9] subscription  ARGV[10] generation  ARGV[11] how many at most
-- Returns { how many are left, outcome }. O(batch).
local sub, gen = ARGV[A], ARGV[A + 1]
redis.call('ZREMRANGEBYSCORE', P .. 'dead', '-inf', now - 86400000)
redis.call('ZADD', P .. 'dead', now, gen)
local set = P .. 'b:' .. sub .. ':' .. gen
for _, id in ipairs(redis.call('SRANDMEMBER', set, tonumber(ARGV[A + 2]))) do
  local c = load(id)
  if c and c.gen == gen then remove(c) else redis.call('SREM', set, id) end
end
return { redis.call('SCARD', set), outcome() }
