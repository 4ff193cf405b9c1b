-- Stores a subscription unless its id is taken. Global, not of a partition: it begins with changed.lua, not with lib.lua.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] hash of backfills under way
-- KEYS[4] zset of changes of the first hash
-- ARGV[1] id  ARGV[2] subscription as JSON  ARGV[3] generation
-- Returns "" if it was stored, or the JSON of the one that is there. O(log changes).
local there = redis.call('HGET', KEYS[1], ARGV[1])
if there then return there end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3] .. ' 0 0')
changed(KEYS[2], KEYS[4], ARGV[1])
return ''
