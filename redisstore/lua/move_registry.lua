-- Moves on how far the registry stream was read, unless another replica has meanwhile. Global.
-- KEYS[1] string offset
-- ARGV[1] the offset that was read from  ARGV[2] the offset read to
-- Returns 1 if it was moved. O(1).
local at = redis.call('GET', KEYS[1]) or '-1'
if at ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
