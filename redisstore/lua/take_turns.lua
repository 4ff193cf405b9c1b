-- Takes some turns of all of the limits (spec.TakeTurns). It has no library.
-- KEYS[1…] string "until interval at" of each limit, µs (spec.Pace). The key is gone a minute after its turns are free.
-- now: ms, or -1 for Redis's own clock  most: how many turns at most. Then follow, for each limit: its interval, µs,
-- fsm.Limit.Stored and fsm.Limit.Share.
-- Returns { how many turns, how long to wait, µs }. O(limits).
local now, most = unpack(ARGV, 1, 2)
now, most = tonumber(now) * 1000, tonumber(most)
if now < 0 then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000000 + tonumber(t[2])
end
local limits, free = {}, math.huge
for i, key in ipairs(KEYS) do
  local interval, stored, share = unpack(ARGV, 3 * i, 3 * i + 2)
  local l = { interval = tonumber(interval), stored = tonumber(stored), ahead = 0 }
  local till, was_interval, at = string.match(redis.call('GET', key) or '', '^(%d+) (%d+) (%d+)$')
  if till then
    l.ahead = math.max(0, tonumber(till) - math.max(now, tonumber(at)))
    if l.ahead > 0 and tonumber(was_interval) ~= l.interval then
      l.ahead = math.floor(l.ahead * l.interval / tonumber(was_interval))
    end
  end
  free = math.min(free, math.floor((l.stored * l.interval - l.ahead) / l.interval))
  most = math.min(most, tonumber(share))
  limits[i] = l
end
local n, wait, longest = math.min(free, most), 0, 0
if free <= 0 then
  for _, l in ipairs(limits) do
    wait = math.max(0, l.ahead + (most - l.stored) * l.interval)
    longest = math.max(longest, wait)
  end
  if longest > wait then return { 0, longest } end
  n = most
end
for i, key in ipairs(KEYS) do
  local l = limits[i]
  local taken = math.max(l.ahead, wait) + n * l.interval
  local text = string.format('%.0f %.0f %.0f', now + taken, l.interval, now)
  redis.call('SET', key, text, 'PX', math.ceil(taken / 1000) + 60000)
end
return { n, wait }
