-- The roll call of the replicas. Global.
-- KEYS[1] zset replica -> until when it counts as alive, ms
-- ARGV[1] replica  ARGV[2] how long it counts as alive from now on, ms; 0 to leave
-- Returns the replicas that are alive. O(replicas).
local t = redis.call('TIME')
local now, ttl = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if ttl == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), ARGV[1])
end
return redis.call('ZRANGE', KEYS[1], 0, -1)
