-- Stores a new form of a subscription, unless the old form has changed since the caller read it. Global; it begins with
-- changed.lua. Every version of the list that is read later has the new form.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] zset of changes of that hash.
-- ARGV[1] id  ARGV[2] the new form as JSON  ARGV[3] generation  ARGV[4] revision of the old form.
-- ARGV[5] the list's highest version that the caller has seen  ARGV[6] a random number from 0 to 2047.
-- Returns 1 if it is stored, 0 if the old form has changed or the subscription is gone. O(log changes).
local there = redis.call('HGET', KEYS[1], ARGV[1])
local sub = there and cjson.decode(there)
if not sub or sub.generation ~= ARGV[3] or (tonumber(sub.revision) or 0) ~= tonumber(ARGV[4]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
changed(KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6]))
return 1
