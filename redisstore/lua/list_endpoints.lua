-- Reads the list of endpoints in trouble and its version at one moment. If the changes since another version are known
-- (changed.lua), it returns only these. Global; it begins with changed.lua.
-- The keys are those of endpoint.lua, without the subscriptions.
-- since: a version, or "" for all  now: ms, or -1 for Redis's own clock.
-- Returns { version, whole, { generation, endpoint, … }, now in ms, { origin, until, … } }. `whole` is 1 if it is all
-- of the list, otherwise 0. The endpoint is "" if it is off the list. `until` is later than now, ms. These are all
-- origins. O(endpoints in trouble + origins), or O(changes + origins).
local list_key, version_key, changes_key, pauses_key = unpack(KEYS)
local since, now = unpack(ARGV)
now = tonumber(now)
local version, changes = redis.call('GET', version_key) or '0', changes_since(list_key, changes_key, since)
if now < 0 then now = server_time() end
local pauses = redis.call('ZRANGEBYSCORE', pauses_key, string.format('(%.0f', now), '+inf', 'WITHSCORES')
return { version, changes and 0 or 1, changes or redis.call('HGETALL', list_key), now, pauses }
