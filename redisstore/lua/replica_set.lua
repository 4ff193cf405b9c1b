-- Keeps the replica set: which replicas are alive, and whether there may be writes upstream that the store was not told
-- of. Global.
-- replicas_key: zset replica -> until when it counts as alive, ms.
-- unnoted_key: string: until when subscriptions count as older than writes that were not noted, ms; none is 0.
-- left_key: zset replica -> when it left, ms. A replica that dies does not say that it leaves.
-- alive_since_key: hash replica -> since when it is alive without a break, ms.
-- till: until when the replica counts as alive, ms by this server's clock; 0 to leave, -1 only to look. A call that
-- arrives late means no more than when it was made.
-- most: how long from now that is at most, ms  some: 1 if it has unnoted writes, or is about to.
-- started: 1 if it has only just started.
-- Returns { now, { live, … }, unnoted, { left, … }, { since, … } }. `now` is the server's time in ms, `live` a live
-- replica. `unnoted` is the latest version of the list of subscriptions (changed.lua) that counts as older than unnoted
-- writes, or 0. `left` is a replica that left within LEFT; earlier ones stay until another replica leaves. There are
-- 1,000 at most. `since` is since when each live replica is alive, in ms, 0 if that is not known. O(replicas).
local replicas_key, unnoted_key, left_key, alive_since_key = unpack(KEYS)
local replica, till, most, some, started = unpack(ARGV)

-- AWAY is how long a replica may go on with such writes after its place has lapsed, and before it comes back, ms. No
-- stored fact tells whether the replica has ended or is only cut off from this server.
local AWAY = 3600000
-- LEFT is how long the set remembers that a replica has left, ms: until all others have heard of it.
local LEFT = 3600000
local function int(n) return string.format('%.0f', n) end
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local lapsed = redis.call('ZREMRANGEBYSCORE', replicas_key, '-inf', int(now)) > 0
till, some = tonumber(till), some == '1'
if till == 0 then
  redis.call('ZREM', replicas_key, replica)
  redis.call('ZADD', left_key, int(now), replica)
  redis.call('ZREMRANGEBYSCORE', left_key, '-inf', int(now - LEFT))
  redis.call('ZREMRANGEBYRANK', left_key, 0, -1001)
elseif till > now then
  -- No replica counts as alive for longer than it said. A later time is from a server whose clock was ahead.
  local latest = now + tonumber(most)
  till = math.min(till, latest)
  -- A time that is there may be from an earlier run.
  if started == '1' or not redis.call('ZSCORE', replicas_key, replica) then
    redis.call('HSET', alive_since_key, replica, int(now))
  end
  redis.call('ZADD', replicas_key, int(till), replica)
  redis.call('ZREM', left_key, replica)
  for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', replicas_key, '(' .. int(latest), '+inf')) do
    redis.call('ZADD', replicas_key, int(latest), ahead)
  end
end
local was = tonumber(redis.call('GET', unnoted_key) or '0')
local unnoted = was
if lapsed or till == 0 and some then
  unnoted = math.max(was, now + AWAY)
elseif some then
  unnoted = math.max(was, till) -- its place lapses then, unless it reports again
end
if unnoted > was then redis.call('SET', unnoted_key, int(unnoted)) end
if lapsed or till == 0 then
  for _, other in ipairs(redis.call('HKEYS', alive_since_key)) do
    if not redis.call('ZSCORE', replicas_key, other) then redis.call('HDEL', alive_since_key, other) end
  end
end
local live, since = redis.call('ZRANGE', replicas_key, 0, -1), {}
for i, other in ipairs(live) do since[i] = tonumber(redis.call('HGET', alive_since_key, other) or '0') end
return {
  now, live, unnoted > 0 and (unnoted + FSM.CLOCK_SKEW) * FSM.VERSIONS or 0, redis.call('ZRANGE', left_key, 0, -1),
  since,
}
