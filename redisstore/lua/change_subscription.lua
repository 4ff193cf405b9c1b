-- Stores a new form of a subscription, unless the old form has changed since the caller read it. Global; it begins with
-- changed.lua. Every version of the list that is read later has the new form.
-- list_key: hash id -> subscription as JSON  version_key: of that hash  changes_key: zset of changes of that hash.
-- sub: its id  text: the new form as JSON  revision: of the old form.
-- seen: the list's highest version that the caller has seen  drawn: a random number from 0 to 2047.
-- Returns 1 if it is stored, 0 if the old form has changed or the subscription is gone. O(log changes).
local list_key, version_key, changes_key = unpack(KEYS)
local sub, text, gen, revision, seen, drawn = unpack(ARGV)
local there = redis.call('HGET', list_key, sub)
local was = there and cjson.decode(there)
if not was or was.generation ~= gen or (tonumber(was.revision) or 0) ~= tonumber(revision) then return 0 end
redis.call('HSET', list_key, sub, text)
changed(version_key, changes_key, sub, tonumber(seen), tonumber(drawn))
return 1
