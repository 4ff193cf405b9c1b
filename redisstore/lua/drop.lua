-- Removes some consumers of a subscription that mark_deleted.lua was told of, and then some of its dead letters. Call again until nothing
-- is left.
-- ARGV[9] subscription  ARGV[10] generation
-- Returns { how much is left, outcome }. O(links that one script may read).
local LETTERS_DROPPED = 50
local sub, gen = ARGV[A], ARGV[A + 1]
local set = P .. 'b:' .. sub .. ':' .. gen
for _, id in ipairs(redis.call('SRANDMEMBER', set, 50)) do
  if not can_read(id) then break end
  local c = load(id)
  if c and c.gen == gen then remove(c, 'subscription_deleted') else redis.call('SREM', set, id) end
end
local left = redis.call('SCARD', set)
if left == 0 then
  -- Those of another subscription by the same name came later, so they lie behind.
  for _, n in ipairs(letters_of(sub, '-inf', '+inf', LETTERS_DROPPED)) do
    local letter = letter_of(n)
    if letter and letter.g ~= gen then break end
    drop_letter(n)
    left = redis.call('ZCARD', P .. 'dead:' .. sub)
  end
end
if left == 0 then redis.call('HDEL', P .. 'dropping', gen) end
return reply({ left, outcome() })
