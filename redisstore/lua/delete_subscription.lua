-- Takes a subscription off the list and remembers that its consumers are yet to be removed. Global.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] hash of backfills under way
-- KEYS[4] hash generation -> id of subscriptions whose consumers are yet to be removed
-- ARGV[1] id
-- Returns 1 if it was there. O(1).
local there = redis.call('HGET', KEYS[1], ARGV[1])
if not there then return 0 end
redis.call('HSET', KEYS[4], cjson.decode(there).generation, ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
-- A list that was lost and the one that came instead must not share a version, so it is a time, in microseconds.
local t = redis.call('TIME')
local version = tonumber(t[1]) * 1000000 + tonumber(t[2])
version = math.max(version, tonumber(redis.call('GET', KEYS[2]) or '0') + 1)
redis.call('SET', KEYS[2], string.format('%.0f', version))
return 1
