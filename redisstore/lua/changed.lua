-- This file begins every script that reads or changes the list of subscriptions, or the list of endpoints in trouble.
--
-- The changes are a zset of "version id", sorted by version. A caller that has one of these versions reads what has
-- changed since. Any other version is older than the oldest one in the zset, or is of a list that was lost. The id of
-- an endpoint is the generation of its subscription.

-- server_time returns the time by Redis's own clock, ms.
local function server_time()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- changed gives the list a new version, in which the item with this id has changed. It returns the version. A version
-- is the time in ms, times VERSIONS, plus a random number. It is higher than the last version and every version that
-- the caller has seen. So no version comes twice, even if the list has lost its latest changes. O(log changes).
-- `seen` is the highest version that the caller has seen. `drawn` is a random number, from 0 to below VERSIONS.
local function changed(version_key, changes_key, id, seen, drawn)
  local was = tonumber(redis.call('GET', version_key) or '0')
  local version = math.max(server_time() * FSM.VERSIONS + drawn, math.max(was, seen) + 1 + drawn)
  was, version = string.format('%.0f', was), string.format('%.0f', version)
  if redis.call('EXISTS', changes_key) == 0 then redis.call('ZADD', changes_key, was, was .. ' ') end
  redis.call('ZADD', changes_key, version, version .. ' ' .. id)
  redis.call('ZREMRANGEBYRANK', changes_key, 0, -1001)
  redis.call('SET', version_key, version)
  return version
end

-- changes_since returns { id, item, … } of what has changed in a list since a version. The item is "" if it is gone. It
-- returns nil if the changes since that version are not known. `list_key` names the hash id -> item. O(changes).
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

