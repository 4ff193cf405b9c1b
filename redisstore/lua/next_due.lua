-- Finds how long it is until the next deadline of partitions, by the clock that judges deadlines. It has no
-- library.
-- KEYS[1…] zset consumer -> deadline, ms; several keys on a single server only.
-- now: ms, or -1 for Redis's own clock.
-- Returns milliseconds for each key: 0 if the deadline has passed, -1 if there is none. O(keys * log n).
local now = tonumber(ARGV[1])
local next = {}
for i, due in ipairs(KEYS) do
  local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
  if not first[2] then
    next[i] = -1
  else
    if now < 0 then
      local t = redis.call('TIME')
      now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
    end
    next[i] = math.max(0, math.ceil(tonumber(first[2]) - now))
  end
end
return next
