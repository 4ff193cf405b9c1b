-- Changes the fsm.OutboxConfig, unless it has changed since the caller read it. Global; it begins with changed.lua.
-- Every version of the list of subscriptions that is read later has the new form.
-- KEYS[1] the configuration as JSON  KEYS[2] version of the list of subscriptions  KEYS[3] zset of its changes.
-- ARGV[1] the old form, "" for none  ARGV[2] the new form.
-- ARGV[3] the list's highest version that the caller has seen  ARGV[4] a random number from 0 to 2047.
-- Returns 1 if it is stored, 0 if the old form has changed. O(log changes).
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
changed(KEYS[2], KEYS[3], ':', tonumber(ARGV[3]), tonumber(ARGV[4])) -- no subscription has this id
return 1
