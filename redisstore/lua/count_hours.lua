-- Returns what became of events in some hours. Hours count since 1970.
-- Returns { hour, { what and provider, how many, … }, … }. O(hours and numbers).
local first, last = unpack(ARGV, A)
local found = {}
for hour = tonumber(first), tonumber(last) do
  local counts = redis.call('HGETALL', P .. 'hour:' .. int(hour))
  if #counts > 0 then
    found[#found + 1] = int(hour)
    found[#found + 1] = counts
  end
end
return reply(found)
