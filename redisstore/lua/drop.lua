-- Removes some consumers of a deleted subscription (mark_deleted.lua), and then some of its dead letters. Call again
-- until nothing is left.
-- Returns how much is left. O(links that one script may read).
local sub, gen = unpack(ARGV, A)
local LETTERS_DROPPED = 50
local set = P .. 'b:' .. sub .. ':' .. gen
local function drop(id)
  local c = load(id)
  if c and c.gen == gen then
    remove(c, 'subscription_deleted')
  elseif not is_quarantined(id) then
    redis.call('SREM', set, id)
  end
end
for _, id in ipairs(redis.call('SRANDMEMBER', set, 50)) do
  if not can_read(id) then break end
  apart(drop, id)
  if is_quarantined(id) then
    redis.call('SREM', set, id)
    local _, of = named(id)
    if not of or redis.call('SISMEMBER', P .. 'b:' .. sub .. ':' .. of, id) == 0 then erase(id) end
  end
end
local left = redis.call('SCARD', set)
if left == 0 then
  -- Letters of a later subscription with the same id lie behind.
  for _, n in ipairs(letters_of(sub, '-inf', '+inf', LETTERS_DROPPED)) do
    local letter = letter_of(n)
    if letter and letter.g ~= gen then break end
    drop_letter(n)
    redis.call('ZREM', P .. 'dead:' .. sub, n) -- also if the letter is lost, or cannot be read
    left = redis.call('ZCARD', P .. 'dead:' .. sub)
  end
end
if left == 0 then
  if redis.call('HDEL', P .. 'dropping', gen) == 1 then redis.call('HINCRBY', P .. 'meta', 'dropping', -1) end
  redis.call('HDEL', P .. 'asides', gen, gen .. ':replays') -- the counts of asides that could not be read
end
return reply(left)
