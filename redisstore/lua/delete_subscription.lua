-- Takes a subscription off the list, and remembers that no partition was told of the deletion yet. Global; it begins
-- with changed.lua.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash  KEYS[3] hash of backfills under way.
-- KEYS[4] zset of changes of the first hash.
-- KEYS[5] hash generation -> id of deleted subscriptions that some partitions were not told of.
-- KEYS[6] hash generation -> endpoint in trouble  KEYS[7] version of that hash  KEYS[8] zset of changes of that hash.
-- KEYS[9] zset of the delivery logs (deliverylog.go).
-- ARGV[1] id  ARGV[2] the list's highest version that the caller has seen  ARGV[3] a random number from 0 to 2047.
-- ARGV[4] the highest version of KEYS[6] that the caller has seen.
-- Returns { version of the list now, { generation, … } }. The caller must tell the partitions of these generations of
-- the id. They are the deleted one, if there was one, and any from calls that were cut short.
-- O(log changes + subscriptions deleted at this moment).
local there = redis.call('HGET', KEYS[1], ARGV[1])
if there then
  local generation = cjson.decode(there).generation
  redis.call('HSET', KEYS[5], generation, ARGV[1])
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[3], ARGV[1])
  redis.call('ZREM', KEYS[9], ARGV[1])
  changed(KEYS[2], KEYS[4], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]))
  if redis.call('HDEL', KEYS[6], generation) == 1 then
    changed(KEYS[7], KEYS[8], generation, tonumber(ARGV[4]), tonumber(ARGV[3]))
  end
end
local generations = {}
local untold = redis.call('HGETALL', KEYS[5])
for i = 1, #untold, 2 do
  if untold[i + 1] == ARGV[1] then generations[#generations + 1] = untold[i] end
end
return { redis.call('GET', KEYS[2]) or '0', generations }
