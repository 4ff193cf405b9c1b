-- Removes some consumers of a subscription that mark_deleted.lua was told of. Call again until nothing is left.
-- ARGV[9] subscription  ARGV[10] generation
-- Returns { how many are left, outcome }. O(links that one script may read).
local sub, gen = ARGV[A], ARGV[A + 1]
local set = P .. 'b:' .. sub .. ':' .. gen
for _, id in ipairs(redis.call('SRANDMEMBER', set, 50)) do
  if not can_read(id) then break end
  local c = load(id)
  if c and c.gen == gen then remove(c, 'subscription_deleted') else redis.call('SREM', set, id) end
end
local left = redis.call('SCARD', set)
if left == 0 then redis.call('HDEL', P .. 'dropping', gen) end
return reply({ left, outcome() })
