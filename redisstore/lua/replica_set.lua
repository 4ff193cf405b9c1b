-- Keeps the replica set: which replicas are alive, and whether there may be writes upstream that the store was not told
-- of. Global.
-- KEYS[1] zset replica -> until when it counts as alive, ms.
-- KEYS[2] string: until when subscriptions count as older than writes that were not noted, ms; none is 0.
-- KEYS[3] zset replica -> when it left, ms. A replica that dies does not say that it leaves.
-- KEYS[4] hash replica -> since when it is alive without a break, ms.
-- ARGV[1] replica.
-- ARGV[2] until when it counts as alive, ms by this server's clock; 0 to leave, -1 only to look. A call that arrives
-- late means no more than when it was made.
-- ARGV[3] how long from now that is at most, ms  ARGV[4] 1 if the replica has unnoted writes, or is about to.
-- ARGV[5] 1 if the replica has only just started.
-- Returns { now, { live, … }, unnoted, { left, … }, { since, … } }. `now` is the server's time in ms, `live` a live
-- replica. `unnoted` is the latest version of the list of subscriptions (changed.lua) that counts as older than unnoted
-- writes, or 0. `left` is a replica that left within LEFT; earlier ones stay until another replica leaves. There are
-- 1,000 at most. `since` is since when each live replica is alive, in ms, 0 if that is not known. O(replicas).

-- AWAY is how long a replica may go on with such writes after its place has lapsed, and before it comes back, ms. No
-- stored fact tells whether the replica has ended or is only cut off from this server.
local AWAY = 3600000
-- LEFT is how long the set remembers that a replica has left, ms: until all others have heard of it.
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
  -- No replica counts as alive for longer than it said. A later time is from a server whose clock was ahead.
  local most = now + tonumber(ARGV[3])
  till = math.min(till, most)
  -- An older version of Reveille does not store these times. A time that is there may be from an earlier run.
  if ARGV[5] == '1' or not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
    redis.call('HSET', KEYS[4], ARGV[1], int(now))
  end
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
  unnoted = math.max(was, till) -- its place lapses then, unless it reports again
end
if unnoted > was then redis.call('SET', KEYS[2], int(unnoted)) end
if lapsed or till == 0 then
  for _, replica in ipairs(redis.call('HKEYS', KEYS[4])) do
    if not redis.call('ZSCORE', KEYS[1], replica) then redis.call('HDEL', KEYS[4], replica) end
  end
end
local live, since = redis.call('ZRANGE', KEYS[1], 0, -1), {}
for i, replica in ipairs(live) do since[i] = tonumber(redis.call('HGET', KEYS[4], replica) or '0') end
return {
  now, live, unnoted > 0 and (unnoted + FSM.CLOCK_SKEW) * FSM.VERSIONS or 0, redis.call('ZRANGE', KEYS[3], 0, -1),
  since,
}
