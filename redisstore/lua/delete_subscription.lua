-- Takes a subscription off the list, and remembers that no partition was told of the deletion yet. Global; it begins
-- with changed.lua.
-- list_key: hash id -> subscription as JSON  version_key: of that hash  backfills_key: hash of backfills under way.
-- changes_key: zset of changes of the first hash.
-- dropping_key: hash generation -> id of deleted subscriptions that some partitions were not told of.
-- endpoints_key: hash generation -> endpoint in trouble. It has a version and a zset of changes, too.
-- logged_key: zset of the delivery logs (deliverylog.go).
-- sub: its id  seen: the list's highest version that the caller has seen  drawn: a random number from 0 to 2047.
-- endpoints_seen: the highest version of the endpoints that the caller has seen.
-- Returns { version of the list now, { generation, … } }. The caller must tell the partitions of these generations of
-- the id. They are the deleted one, if there was one, and any from calls that were cut short.
-- O(log changes + subscriptions deleted at this moment).
local list_key, version_key, backfills_key, changes_key, dropping_key, endpoints_key, endpoints_version_key,
  endpoints_changes_key, logged_key = unpack(KEYS)
local sub, seen, drawn, endpoints_seen = unpack(ARGV)
local there = redis.call('HGET', list_key, sub)
if there then
  local gen = cjson.decode(there).generation
  redis.call('HSET', dropping_key, gen, sub)
  redis.call('HDEL', list_key, sub)
  redis.call('HDEL', backfills_key, sub)
  redis.call('ZREM', logged_key, sub)
  changed(version_key, changes_key, sub, tonumber(seen), tonumber(drawn))
  if redis.call('HDEL', endpoints_key, gen) == 1 then
    changed(endpoints_version_key, endpoints_changes_key, gen, tonumber(endpoints_seen), tonumber(drawn))
  end
end
local generations = {}
local untold = redis.call('HGETALL', dropping_key)
for i = 1, #untold, 2 do
  if untold[i + 1] == sub then generations[#generations + 1] = untold[i] end
end
return { redis.call('GET', version_key) or '0', generations }
