-- Stores another form of a subscription, if it is still as it was when that was made. Global; it begins with changed.lua: whatever
-- version of the list is read later has the new form.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] zset of changes of that hash
-- ARGV[1] id  ARGV[2] the new form as JSON  ARGV[3] generation  ARGV[4] revision of the form that it was made of
-- ARGV[5] the list's highest version that the caller has seen  ARGV[6] a number from 0 to 2047, drawn by chance
-- Returns 1 if it is stored, 0 if there is another form by now, or no such subscription any more. O(log changes).
local there = redis.call('HGET', KEYS[1], ARGV[1])
local sub = there and cjson.decode(there)
if not sub or sub.generation ~= ARGV[3] or (tonumber(sub.revision) or 0) ~= tonumber(ARGV[4]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
changed(KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6]))
return 1
