-- Stores a subscription unless its id is taken. Global, not of a partition: it does not begin with lib.lua.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] hash of backfills under way
-- ARGV[1] id  ARGV[2] subscription as JSON  ARGV[3] generation
-- Returns "" if it was stored, or the JSON of the one that is there. O(1).
local there = redis.call('HGET', KEYS[1], ARGV[1])
if there then return there end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3] .. ' 0 0')
redis.call('INCR', KEYS[2])
return ''
