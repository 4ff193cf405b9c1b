-- Stores a subscription unless its id is taken. Global, not of a partition: it does not begin with lib.lua.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] hash of backfills under way
-- ARGV[1] id  ARGV[2] subscription as JSON  ARGV[3] generation
-- Returns "" if it was stored, or the JSON of the one that is there. O(1).
local there = redis.call('HGET', KEYS[1], ARGV[1])
if there then return there end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3] .. ' 0 0')
-- A list that was lost and the one that came instead must not share a version, so it is a time, in microseconds.
local t = redis.call('TIME')
local version = tonumber(t[1]) * 1000000 + tonumber(t[2])
version = math.max(version, tonumber(redis.call('GET', KEYS[2]) or '0') + 1)
redis.call('SET', KEYS[2], string.format('%.0f', version))
return ''
