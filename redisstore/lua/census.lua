-- Counts a partition's consumers by state, for the metrics, and takes off the lists those that a version without them has moved on:
-- they stay behind and so come to be the oldest. One that is there again by now waits from now on, as far as is known.
-- ARGV[9…] subscription, generation, … of those whose consumers are counted
-- Returns { waiting, retired, live, given up, all, streams known, how long the oldest of waiting has waited in ms or -1 if none is known }.
-- O(subscriptions).
local function count(list)
  local since
  for _ = 1, 1000 do
    local first = redis.call('ZRANGE', P .. list, 0, 0, 'WITHSCORES')
    local oldest = first[1]
    if not oldest then break end
    local c = redis.call('HMGET', P .. 'c:' .. oldest, 'state', 'retired', 'epoch', 'listed')
    if place_of({ state = c[1], retired = tonumber(c[2] or '0') }) ~= list then
      redis.call('ZREM', P .. list, oldest)
    elseif c[3] == c[4] then
      since = tonumber(first[2])
      break
    else
      redis.call('HSET', P .. 'c:' .. oldest, 'woke', '0', 'listed', c[3])
      redis.call('ZADD', P .. list, now, oldest)
    end
  end
  return redis.call('ZCARD', P .. list), since
end
local waiting, since = count('waiting')
local retired, live, given_up = count('retired'), count('live'), count('given_up')
local all = 0
for i = A, #ARGV, 2 do all = all + redis.call('SCARD', P .. 'b:' .. ARGV[i] .. ':' .. ARGV[i + 1]) end
-- With very many left behind it is not known yet, and theirs would be wrong.
local waited = since and math.max(0, now - since) or -1
return unchanged({ waiting, retired, live, given_up, all, redis.call('HLEN', P .. 'known'), waited })
