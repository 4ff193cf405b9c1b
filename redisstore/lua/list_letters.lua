-- Lists dead letters, in the order in which they came.
-- ARGV[5] subscription, "" for all  ARGV[6] first number  ARGV[7] last number  ARGV[8] how many at most.
-- Returns { number, what is kept of that letter, … }. O(letters returned).
local list = {}
in_chunks(letters_of(ARGV[A], ARGV[A + 1], ARGV[A + 2], ARGV[A + 3]), function(...)
  local kept = redis.call('HMGET', P .. 'letters', ...)
  for i, n in ipairs({ ... }) do
    list[#list + 1] = n
    list[#list + 1] = kept[i] or ''
  end
end)
return reply(list)
