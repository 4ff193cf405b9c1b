-- Takes a subscription off the list and remembers that its consumers are yet to be removed. Global; it begins with changed.lua.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] hash of backfills under way
-- KEYS[4] zset of changes of the first hash
-- KEYS[5] hash generation -> id of subscriptions whose consumers are yet to be removed
-- ARGV[1] id
-- Returns 1 if it was there. O(log changes).
local there = redis.call('HGET', KEYS[1], ARGV[1])
if not there then return 0 end
redis.call('HSET', KEYS[5], cjson.decode(there).generation, ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
changed(KEYS[2], KEYS[4], ARGV[1])
return 1
