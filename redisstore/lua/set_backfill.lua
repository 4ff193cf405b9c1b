-- Updates or ends a backfill, unless its subscription was deleted since. Global.
-- KEYS[1] hash of backfills under way: id -> "generation done total".
-- sub: its id  progress: "done total", or "" to end it.
-- Returns 1 if there was one, otherwise 0. O(1).
local sub, gen, progress = unpack(ARGV)
local there = redis.call('HGET', KEYS[1], sub)
if not there or string.match(there, '^%S+') ~= gen then return 0 end
if progress == '' then
  redis.call('HDEL', KEYS[1], sub)
else
  redis.call('HSET', KEYS[1], sub, gen .. ' ' .. progress)
end
return 1
