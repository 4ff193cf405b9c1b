-- Stores a subscription unless its id is taken. Global, not of a partition: it begins with changed.lua, not with lib.lua.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] hash of backfills under way
-- KEYS[4] zset of changes of the first hash
-- ARGV[1] id  ARGV[2] subscription as a JSON object  ARGV[3] generation  ARGV[4] the list's highest version that the caller has seen
-- ARGV[5] a number from 0 to 2047, drawn by chance
-- Returns the JSON of the one that is stored now. O(log changes).
local there = redis.call('HGET', KEYS[1], ARGV[1])
if there then return there end
-- A full Redis refuses this write only as the first of the script: after another write it would take it.
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3] .. ' 0 0')
local version = changed(KEYS[2], KEYS[4], ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5]))
local stored = string.sub(ARGV[2], 1, -2) .. ',"version":' .. version .. '}'
redis.call('HSET', KEYS[1], ARGV[1], stored)
return stored
