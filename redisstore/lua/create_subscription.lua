-- Stores a subscription unless its id is taken. Global, not of a partition: it begins with changed.lua.
-- list_key: hash id -> subscription as JSON  version_key: of that hash  backfills_key: hash of backfills under way.
-- changes_key: zset of changes of the first hash.
-- sub: its id  text: the subscription as a JSON object.
-- seen: the list's highest version that the caller has seen  drawn: a random number from 0 to 2047.
-- Returns the JSON of the subscription that has the id now. O(log changes).
local list_key, version_key, backfills_key, changes_key = unpack(KEYS)
local sub, text, gen, seen, drawn = unpack(ARGV)
local there = redis.call('HGET', list_key, sub)
if there then return there end
-- This write must be the first: a full Redis refuses only the first write of a script, and takes later ones.
redis.call('HSET', backfills_key, sub, gen .. ' 0 0')
local version = changed(version_key, changes_key, sub, tonumber(seen), tonumber(drawn))
local stored = string.sub(text, 1, -2) .. ',"version":' .. version .. '}'
redis.call('HSET', list_key, sub, stored)
return stored
