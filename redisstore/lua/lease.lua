-- Takes, keeps or gives back the lease of a partition. Whoever asks also sets the partition's fence, so that a life of the server is on
-- record before its first wake.
-- ARGV[9] replica  ARGV[10] how long the lease is for, ms; 0 to give it back
-- Returns { 1 if the replica has it now, base of the epochs }. O(1).
local replica, ttl = ARGV[A], tonumber(ARGV[A + 1])
local owner = redis.call('GET', P .. 'lease')
if owner and owner ~= replica then
  -- One that lasts for longer than it can have been taken for is from a server whose clock was ahead.
  if ttl > 0 and redis.call('PTTL', P .. 'lease') > ttl then redis.call('PEXPIRE', P .. 'lease', ttl) end
  return { 0, fence() }
end
if ttl == 0 then
  redis.call('DEL', P .. 'lease')
  return { 0, fence() }
end
redis.call('SET', P .. 'lease', replica, 'PX', ttl)
return { 1, fence() }
