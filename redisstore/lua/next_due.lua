-- How long it is until the next deadline of a partition, by the clock that judges it. It does not begin with lib.lua.
-- KEYS[1] zset consumer -> deadline, ms
-- ARGV[1] now in ms, or -1 for Redis's own clock
-- Returns milliseconds, 0 if it has passed, -1 if there is none. O(log n).
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if not first[2] then return -1 end
local now = tonumber(ARGV[1])
if now < 0 then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
return math.max(0, math.ceil(tonumber(first[2]) - now))
