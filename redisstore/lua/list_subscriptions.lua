-- Reads the list of subscriptions and its version at one moment. If the changes since another version are known
-- (changed.lua), it returns only these. Global; it begins with changed.lua.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] zset of changes of that hash.
-- ARGV[1] the version since which, or "" for all.
-- Returns { version, 1, { JSON, … } } with the whole list. It has 2 in place of 1 if the list was begun anew since
-- (changed.lua). For changes, it returns { version, 0, { id, JSON, … } }. There, the JSON is "" if the subscription is
-- gone. O(subscriptions), or O(changes).
local version, changes = redis.call('GET', KEYS[2]) or '0', changes_since(KEYS[1], KEYS[3], ARGV[1])
if not changes then
  local anew = ARGV[1] ~= '' and redis.call('ZSCORE', KEYS[3], '0 ')
  return { version, anew and 2 or 1, redis.call('HVALS', KEYS[1]) }
end
return { version, 0, changes }
