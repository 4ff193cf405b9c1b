-- Drops dead letters and their replays, the latest ones first. So no replay begins of a letter that goes next.
-- ARGV[5] subscription, "" for all  ARGV[6] consumer, "" for all  ARGV[7] first number  ARGV[8] last number.
-- ARGV[9] how many letters it looks at, at most.
-- Returns { dropped, 0, looked at, last, outcome }. `last` is the number of the last letter that it looked at, 0 for
-- none. O(letters looked at).
local dropped, sub, id = 0, ARGV[A], ARGV[A + 1]
local list = P .. (sub == '' and 'dead' or 'dead:' .. sub)
local numbers = redis.call('ZREVRANGEBYSCORE', list, ARGV[A + 3], ARGV[A + 2], 'LIMIT', 0, ARGV[A + 4])
for _, n in ipairs(numbers) do
  if id == '' or is_of(letter_of(n), id) then
    dropped = dropped + 1
    drop_letter(n)
  end
end
return reply({ dropped, 0, #numbers, numbers[#numbers] or 0, outcome() })
