-- Remembers a stream that discovery came upon. One that is there never becomes awaited again.
-- ARGV[9] path  ARGV[10] 1 if it is only awaited
-- The time is in microseconds: what came before a subscription and what after is told by it.
-- Returns 1 if that was news. O(1).
local path, awaited = ARGV[A], ARGV[A + 1] == '1'
local known = redis.call('HGET', P .. 'known', path)
if awaited and not known then
  redis.call('HSET', P .. 'known', path, '?' .. int(micros))
elseif not awaited and (not known or string.sub(known, 1, 1) == '?') then
  redis.call('HSET', P .. 'known', path, micros)
else
  return 0
end
return 1
