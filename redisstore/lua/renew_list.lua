-- Gives the list of subscriptions a new version, in which nothing has changed. Global; it begins with changed.lua.
-- KEYS[1] version of the list  KEYS[2] zset of its changes
-- ARGV[1] the list's highest version that the caller has seen  ARGV[2] a number from 0 to 2047, drawn by chance
-- Returns the version. O(log changes).
return changed(KEYS[1], KEYS[2], '', tonumber(ARGV[1]), tonumber(ARGV[2]))
