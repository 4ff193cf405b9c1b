-- Notes that a client is told of a subscription that it has not created, once. Global; it begins with changed.lua: whatever version
-- of the list is read later says so, too.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] zset of changes of that hash
-- ARGV[1] id  ARGV[2] generation  ARGV[3] the list's highest version that the caller has seen  ARGV[4] a number from 0 to 2047,
-- drawn by chance
-- Returns 1 if it is noted, 0 if there is no such subscription any more. O(log changes).
local there = redis.call('HGET', KEYS[1], ARGV[1])
local sub = there and cjson.decode(there)
if not sub or sub.generation ~= ARGV[2] then return 0 end
if sub.told then return 1 end
redis.call('HSET', KEYS[1], ARGV[1], string.sub(there, 1, -2) .. ',"told":true}')
changed(KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]))
return 1
