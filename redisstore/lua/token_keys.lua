-- Stores which token keys a replica has, unless other replicas are alive and have none of them. Global.
-- KEYS[1] zset "replica fingerprint" -> until when the replica counts as alive, ms.
-- ttl: how long the replica counts as alive from now on, ms; 0 to leave. Then follow the fingerprints of its keys.
-- Returns 1 if they were stored, 0 if there are other replicas and none of them has any of the keys.
-- O(replicas * keys).
local replica, ttl = unpack(ARGV, 1, 2)
ttl = tonumber(ttl)
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
local mine, shared, others = {}, false, false
for i = 3, #ARGV do mine[ARGV[i]] = true end
local own = {}
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local who, fingerprint = string.match(member, '^(.*) (%x+)$')
  if who == replica then
    own[#own + 1] = member
  else
    others = true
    shared = shared or mine[fingerprint]
  end
end
if ttl > 0 and others and not shared then return 0 end
for _, member in ipairs(own) do redis.call('ZREM', KEYS[1], member) end
if ttl > 0 then
  local till = string.format('%.0f', now + ttl)
  for fingerprint in pairs(mine) do redis.call('ZADD', KEYS[1], till, replica .. ' ' .. fingerprint) end
end
return 1
