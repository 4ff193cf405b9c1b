-- Keeps the replica set: which replicas are alive. Global. Nobody counts as alive for longer than the caller would: what says so is
-- from a server whose clock was ahead.
-- KEYS[1] zset replica -> until when it counts as alive, ms
-- ARGV[1] replica  ARGV[2] how long it counts as alive from now on, ms; 0 to leave
-- Returns { the server's time in ms, { the replicas that are alive } }. O(replicas).
local t = redis.call('TIME')
local now, ttl = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if ttl == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  local till = string.format('%.0f', now + ttl)
  redis.call('ZADD', KEYS[1], till, ARGV[1])
  for _, replica in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. till, '+inf')) do
    redis.call('ZADD', KEYS[1], till, replica)
  end
end
return { now, redis.call('ZRANGE', KEYS[1], 0, -1) }
