-- What scripts that change the list of subscriptions begin with.
--
-- The changes are a zset of "version id" by version, so that whoever has one of these versions reads what has changed since. A version
-- that is not among them is of before the oldest that is kept, of a list that was lost, or of a replica that keeps no changes.

-- changed gives the list a new version, in which the subscription of an id has changed. O(log changes).
-- version_key: version of the list  changes_key: the changes
local function changed(version_key, changes_key, id)
  local was = tonumber(redis.call('GET', version_key) or '0')
  -- A list that was lost and the one that came instead must not share a version, so it is a time, in microseconds.
  local t = redis.call('TIME')
  local version = math.max(tonumber(t[1]) * 1000000 + tonumber(t[2]), was + 1)
  was, version = string.format('%.0f', was), string.format('%.0f', version)
  local last = redis.call('ZRANGE', changes_key, -1, -1)[1]
  if not last or string.match(last, '^%d+') ~= was then
    redis.call('DEL', changes_key)
    redis.call('ZADD', changes_key, was, was .. ' ')
  end
  redis.call('ZADD', changes_key, version, version .. ' ' .. id)
  redis.call('ZREMRANGEBYRANK', changes_key, 0, -1001)
  redis.call('SET', version_key, version)
end

