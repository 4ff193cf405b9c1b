-- Changes the fsm.OutboxConfig, unless it has changed since the caller read it. Global; it begins with changed.lua.
-- Every version of the list of subscriptions that is read later has the new form.
-- outbox_key: the configuration as JSON  version_key: of the list of subscriptions  changes_key: zset of its changes.
-- was: the old form, "" for none  is: the new form  seen: the list's highest version that the caller has seen.
-- drawn: a random number from 0 to 2047.
-- Returns 1 if it is stored, 0 if the old form has changed. O(log changes).
local outbox_key, version_key, changes_key = unpack(KEYS)
local was, is, seen, drawn = unpack(ARGV)
if (redis.call('GET', outbox_key) or '') ~= was then return 0 end
redis.call('SET', outbox_key, is)
changed(version_key, changes_key, ':', tonumber(seen), tonumber(drawn)) -- no subscription has this id
return 1
