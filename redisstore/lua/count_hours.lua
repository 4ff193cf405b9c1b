-- Returns what became of events in some hours. ARGV[5] first hour since 1970  ARGV[6] last hour.
-- Returns { hour, { what and provider, how many, … }, … }. O(hours and numbers).
local found = {}
for hour = tonumber(ARGV[A]), tonumber(ARGV[A + 1]) do
  local counts = redis.call('HGETALL', P .. 'hour:' .. int(hour))
  if #counts > 0 then
    found[#found + 1] = int(hour)
    found[#found + 1] = counts
  end
end
return reply(found)
