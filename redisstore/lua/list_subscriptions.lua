-- Reads the list of subscriptions and its version at one moment. If the changes since another version are known
-- (changed.lua), it returns only these. Global; it begins with changed.lua.
-- list_key: hash id -> subscription as JSON  version_key: of that hash  changes_key: zset of changes of that hash.
-- since: a version, or "" for all.
-- Returns { version, 1, { JSON, … } } with the whole list. It has 2 in place of 1 if the list was begun anew since
-- (changed.lua). For changes, it returns { version, 0, { id, JSON, … } }. There, the JSON is "" if the subscription is
-- gone. O(subscriptions), or O(changes).
local list_key, version_key, changes_key = unpack(KEYS)
local since = ARGV[1]
local version, changes = redis.call('GET', version_key) or '0', changes_since(list_key, changes_key, since)
if not changes then
  local anew = since ~= '' and redis.call('ZSCORE', changes_key, '0 ')
  return { version, anew and 2 or 1, redis.call('HVALS', list_key) }
end
return { version, 0, changes }
