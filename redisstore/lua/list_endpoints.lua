-- Reads the list of endpoints in trouble and its version at one moment. If the changes since another version are known
-- (changed.lua), it returns only these. Global; it begins with changed.lua.
-- KEYS[1] hash generation -> endpoint (endpoint.lua)  KEYS[2] version of that hash.
-- KEYS[3] zset of changes of that hash  KEYS[4] zset of the origins that are left alone (endpoint.lua).
-- ARGV[1] the version since which, or "" for all  ARGV[2] now in ms, or -1 for Redis's own clock.
-- Returns { version, whole, { generation, endpoint, … }, now in ms, { origin, until, … } }. `whole` is 1 if it is all
-- of the list, otherwise 0. The endpoint is "" if it is off the list. `until` is later than now, ms. These are all
-- origins. O(endpoints in trouble + origins), or O(changes + origins).
local version, changes = redis.call('GET', KEYS[2]) or '0', changes_since(KEYS[1], KEYS[3], ARGV[1])
local now = tonumber(ARGV[2])
if now < 0 then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
local pauses = redis.call('ZRANGEBYSCORE', KEYS[4], string.format('(%.0f', now), '+inf', 'WITHSCORES')
return { version, changes and 0 or 1, changes or redis.call('HGETALL', KEYS[1]), now, pauses }
