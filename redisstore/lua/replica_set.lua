-- Keeps the replica set: which replicas are alive, and whether there may be writes upstream that the store was not told of. Global.
-- KEYS[1] zset replica -> until when it counts as alive, ms
-- KEYS[2] string: until when subscriptions count as older than writes that were not noted, ms; none is 0
-- KEYS[3] zset replica -> when it left, ms. A replica that dies does not say that it leaves
-- KEYS[4] hash replica -> since when it is alive without a break, ms
-- ARGV[1] replica
-- ARGV[2] until when it counts as alive, ms by this server's clock, so that a call which arrives late means no more than it did when it
--         was made; 0 to leave, -1 only to look
-- ARGV[3] the most that is from now, ms  ARGV[4] 1 if it has such writes, or is about to
-- ARGV[5] 1 if it has only just started
-- Returns { the server's time in ms, { the replicas that are alive }, the latest version of the list of subscriptions (changed.lua) that
-- counts as older than such writes, or 0, { the replicas that have left within the last hour }, { since when each of those that are alive
-- is so, in ms, 0 if that is not known } }. O(replicas).

-- AWAY is for how long a replica whose place has lapsed without a word may go on with such writes before it comes back, ms: no stored fact
-- tells whether it has ended or is only cut off from this server.
local AWAY = 3600000
-- LEFT is for how long it is known that a replica has left, ms: until all others have heard of it.
local LEFT = 3600000
local function int(n) return string.format('%.0f', n) end
local t = redis.call('TIME')
local now, till = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000), tonumber(ARGV[2])
local lapsed = redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', int(now)) > 0
local some = ARGV[4] == '1'
if till == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('ZADD', KEYS[3], int(now), ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', int(now - LEFT))
  redis.call('ZREMRANGEBYRANK', KEYS[3], 0, -1001)
elseif till > now then
  -- No replica counts as alive for longer than it said: an entry that says so is from a server whose clock was ahead.
  local most = now + tonumber(ARGV[3])
  till = math.min(till, most)
  -- An older version keeps no such times: one that is there may be of an earlier life.
  if ARGV[5] == '1' or not redis.call('ZSCORE', KEYS[1], ARGV[1]) then redis.call('HSET', KEYS[4], ARGV[1], int(now)) end
  redis.call('ZADD', KEYS[1], int(till), ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  for _, replica in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(most), '+inf')) do
    redis.call('ZADD', KEYS[1], int(most), replica)
  end
end
local was = tonumber(redis.call('GET', KEYS[2]) or '0')
local unnoted = was
if lapsed or till == 0 and some then
  unnoted = math.max(was, now + AWAY)
elseif some then
  unnoted = math.max(was, till) -- its place lapses then, unless it says so again
end
if unnoted > was then redis.call('SET', KEYS[2], int(unnoted)) end
if lapsed or till == 0 then
  for _, replica in ipairs(redis.call('HKEYS', KEYS[4])) do
    if not redis.call('ZSCORE', KEYS[1], replica) then redis.call('HDEL', KEYS[4], replica) end
  end
end
local live, since = redis.call('ZRANGE', KEYS[1], 0, -1), {}
for i, replica in ipairs(live) do since[i] = tonumber(redis.call('HGET', KEYS[4], replica) or '0') end
return { now, live, unnoted > 0 and (unnoted + CLOCK_SKEW) * VERSIONS or 0, redis.call('ZRANGE', KEYS[3], 0, -1), since }
