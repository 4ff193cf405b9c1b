-- Lists dead letters, in the order in which they came.
-- sub: "" for all  from: first number  through: last number  most: how many at most.
-- Returns { number, what is kept of that letter, … }. O(letters returned).
local sub, from, through, most = unpack(ARGV, A)
local list = {}
in_chunks(letters_of(sub, from, through, most), function(...)
  local kept = redis.call('HMGET', P .. 'letters', ...)
  for i, n in ipairs({ ... }) do
    list[#list + 1] = n
    list[#list + 1] = kept[i] or ''
  end
end)
return reply(list)
