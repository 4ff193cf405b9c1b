-- Forgets a stream that discovery came upon.
-- ARGV[9] path  ARGV[10] 1 to forget it only while it is awaited
-- Returns 1 if it was forgotten. O(1).
local path = ARGV[A]
if ARGV[A + 1] == '1' then
  local known = redis.call('HGET', P .. 'known', path)
  if not known or string.sub(known, 1, 1) ~= '?' then return 0 end
end
return redis.call('HDEL', P .. 'known', path)
