-- Updates or ends a backfill, unless its subscription was deleted since. Global.
-- KEYS[1] hash of backfills under way: id -> "generation done total".
-- ARGV[1] id  ARGV[2] generation  ARGV[3] "done total", or "" to end it.
-- Returns 1 if there was one, otherwise 0. O(1).
local there = redis.call('HGET', KEYS[1], ARGV[1])
if not there or string.match(there, '^%S+') ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
end
return 1
