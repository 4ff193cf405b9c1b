-- The list of subscriptions and its version, of one moment: what has changed since another version if that is known (changed.lua),
-- otherwise all of it. Global.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] zset of changes of that hash
-- ARGV[1] the version since which, or "" for all
-- Returns { version, 1, { JSON, … } } with all of them, or { version, 0, { id, JSON or "" if it is gone, … } }.
-- O(subscriptions), or O(changes).
local version, since = redis.call('GET', KEYS[2]) or '0', ARGV[1]
if since == '' or redis.call('ZCOUNT', KEYS[3], since, since) == 0 then
  return { version, 1, redis.call('HVALS', KEYS[1]) }
end
local changes, told = {}, {}
for _, change in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. since, '+inf')) do
  local id = string.match(change, ' (.*)$')
  if not told[id] then
    told[id] = true
    changes[#changes + 1] = id
    changes[#changes + 1] = redis.call('HGET', KEYS[1], id) or ''
  end
end
return { version, 0, changes }
