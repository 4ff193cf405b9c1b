-- Drops dead letters, those that came last, and their replays with them. So no replay begins of one that is to be dropped, too.
-- ARGV[9] subscription, "" for all  ARGV[10] consumer, "" for all  ARGV[11] first number  ARGV[12] last number
-- ARGV[13] how many are looked at at most
-- Returns { how many it has dropped, 0, how many were looked at, the number of the last of these, 0 for none, outcome }.
-- O(letters looked at).
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
