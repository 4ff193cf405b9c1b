-- Keeps the replica set: which replicas are alive, and whether there may be writes upstream that the store was not told of. Global.
-- KEYS[1] zset replica -> until when it counts as alive, ms
-- KEYS[2] string: until when subscriptions count as older than writes that were not noted, ms; none is 0
-- KEYS[3] zset replica -> when it left, ms. A replica that dies does not say that it leaves
-- ARGV[1] replica
-- ARGV[2] until when it counts as alive, ms by this server's clock, so that a call which arrives late means no more than it did when it
--         was made; 0 to leave, -1 only to look
-- ARGV[3] the most that is from now, ms  ARGV[4] 1 if it has such writes, or is about to
-- Returns { the server's time in ms, { the replicas that are alive }, the latest version of the list of subscriptions (changed.lua) that
-- counts as older than such writes, or 0, { the replicas that have left within the last hour } }. O(replicas).

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
return {
  now, redis.call('ZRANGE', KEYS[1], 0, -1), unnoted > 0 and (unnoted + CLOCK_SKEW) * VERSIONS or 0,
  redis.call('ZRANGE', KEYS[3], 0, -1),
}
