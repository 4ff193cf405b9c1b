-- The list of endpoints in trouble and its version, of one moment: what has changed since another version if that is known
-- (changed.lua), otherwise all of it. Global; it begins with changed.lua.
-- KEYS[1] hash generation -> endpoint (endpoint.lua)  KEYS[2] version of that hash  KEYS[3] zset of changes of that hash
-- ARGV[1] the version since which, or "" for all  ARGV[2] now in ms, or -1 for Redis's own clock
-- Returns { version, 1 if it is all of the list, otherwise 0, { generation, endpoint or "" if it is off the list, … }, now in ms }.
-- O(endpoints in trouble), or O(changes).
local version, changes, now = redis.call('GET', KEYS[2]) or '0', changes_since(KEYS[1], KEYS[3], ARGV[1]), tonumber(ARGV[2])
if now < 0 then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
return { version, changes and 0 or 1, changes or redis.call('HGETALL', KEYS[1]), now }
