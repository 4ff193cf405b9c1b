-- What scripts begin with that read or change the list of subscriptions, or that of endpoints in trouble.
--
-- The changes are a zset of "version id" by version, so that a caller that has one of these versions reads what has changed since.
-- A version that is not among them is older than the oldest that is kept, or of a list that was lost. The id of an endpoint is the
-- generation of its subscription.

-- changed gives the list a new version, in which what has an id has changed. No version comes twice, not even if the list has
-- lost its latest changes: it is the time in ms, VERSIONS times over, and a number drawn by chance, and lies above every version that the
-- caller has seen. Returns the version. O(log changes).
-- version_key: version of the list  changes_key: the changes  seen: the highest version that the caller has seen
-- drawn: from 0 to below VERSIONS, by chance
local function changed(version_key, changes_key, id, seen, drawn)
  local was = tonumber(redis.call('GET', version_key) or '0')
  local t = redis.call('TIME')
  local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
  local version = math.max(now * VERSIONS + drawn, math.max(was, seen) + 1 + drawn)
  was, version = string.format('%.0f', was), string.format('%.0f', version)
  if redis.call('EXISTS', changes_key) == 0 then redis.call('ZADD', changes_key, was, was .. ' ') end
  redis.call('ZADD', changes_key, version, version .. ' ' .. id)
  redis.call('ZREMRANGEBYRANK', changes_key, 0, -1001)
  redis.call('SET', version_key, version)
  return version
end

-- changes_since returns { id, item or "" if it is gone, … } of what has changed in a list since a version, or nil if that is not known.
-- O(changes).
-- list_key: hash id -> item
local function changes_since(list_key, changes_key, since)
  if since == '' or redis.call('ZCOUNT', changes_key, since, since) == 0 then return nil end
  local changes, told = {}, {}
  for _, change in ipairs(redis.call('ZRANGEBYSCORE', changes_key, '(' .. since, '+inf')) do
    local id = string.match(change, ' (.*)$')
    if not told[id] then
      told[id] = true
      changes[#changes + 1] = id
      changes[#changes + 1] = redis.call('HGET', list_key, id) or ''
    end
  end
  return changes
end

