-- Takes in that the registry stream tells of a deletion.
-- ARGV[9] path
-- Returns 1 if it was dealt with when it was made (deleted.lua). O(1).
if carried_out() then return unchanged(1) end
local key = P .. 'd:' .. ARGV[A]
local expected = tonumber(redis.call('GET', key) or '0')
if expected == 0 then return unchanged(0) end
note_call()
if expected == 1 then redis.call('DEL', key) else redis.call('DECR', key) end
return unchanged(1)
