-- Drops dead letters, those that came first.
-- ARGV[9] subscription, "" for all  ARGV[10] first number  ARGV[11] last number  ARGV[12] how many at most
-- Returns how many it has dropped. O(letters dropped).
local numbers = letters_of(ARGV[A], ARGV[A + 1], ARGV[A + 2], ARGV[A + 3])
for _, n in ipairs(numbers) do
  local sub = string.match(redis.call('HGET', P .. 'letters', n) or '', '^%d+ (%S+)')
  redis.call('HDEL', P .. 'letters', n)
  redis.call('ZREM', P .. 'dead', n)
  if sub then
    redis.call('ZREM', P .. 'dead:' .. sub, n)
    if redis.call('HINCRBY', P .. 'dead_counts', sub, -1) <= 0 then redis.call('HDEL', P .. 'dead_counts', sub) end
  end
end
return unchanged(#numbers)
