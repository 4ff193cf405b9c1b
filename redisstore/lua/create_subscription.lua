-- Stores a subscription unless its id is taken. Global, not of a partition: it begins with changed.lua.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] hash of backfills under way.
-- KEYS[4] zset of changes of the first hash.
-- ARGV[1] id  ARGV[2] subscription as a JSON object  ARGV[3] generation.
-- ARGV[4] the list's highest version that the caller has seen  ARGV[5] a random number from 0 to 2047.
-- Returns the JSON of the subscription that has the id now. O(log changes).
local there = redis.call('HGET', KEYS[1], ARGV[1])
if there then return there end
-- This write must be the first: a full Redis refuses only the first write of a script, and takes later ones.
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3] .. ' 0 0')
local version = changed(KEYS[2], KEYS[4], ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5]))
local stored = string.sub(ARGV[2], 1, -2) .. ',"version":' .. version .. '}'
redis.call('HSET', KEYS[1], ARGV[1], stored)
return stored
