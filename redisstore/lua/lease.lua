-- Takes, keeps or gives back the lease of a partition, or only looks at the partition. Every call also sets the
-- partition's fence. So an incarnation is on record before its first wake, and every replica learns of it.
-- ttl: how long the lease is for, ms; 0 to give it back, negative to look.
-- Returns { 1 if the replica has the lease now, base of the epochs }. O(1).
local replica, ttl = unpack(ARGV, A)
ttl = tonumber(ttl)
local owner = redis.call('GET', P .. 'lease')
local base = fence()
if ttl < 0 then return reply(owner == replica and 1 or 0, base) end
if owner and owner ~= replica then
  -- If the lease lasts longer than ttl, a server whose clock was ahead has set it.
  if ttl > 0 and redis.call('PTTL', P .. 'lease') > ttl then redis.call('PEXPIRE', P .. 'lease', ttl) end
  return reply(0, base)
end
touched = true
if ttl == 0 then
  redis.call('DEL', P .. 'lease')
  return reply(0, base)
end
redis.call('SET', P .. 'lease', replica, 'PX', ttl)
redis.call('HSET', P .. 'meta', 'at', now())
return reply(1, base)
