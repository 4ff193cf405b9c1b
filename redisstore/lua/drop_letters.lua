-- Drops dead letters, those that came first, and their replays with them.
-- ARGV[9] subscription, "" for all  ARGV[10] consumer, "" for all  ARGV[11] first number  ARGV[12] last number
-- ARGV[13] how many are looked at at most
-- Returns { how many it has dropped, 0, how many were looked at, the number of the last of these, 0 for none, outcome }.
-- O(letters looked at).
local dropped, id, numbers = 0, ARGV[A + 1], letters_of(ARGV[A], ARGV[A + 2], ARGV[A + 3], ARGV[A + 4])
for i = #numbers, 1, -1 do -- from the end, so that no replay begins of one that is to be dropped, too
  if id == '' or is_of(letter_of(numbers[i]), id) then
    dropped = dropped + 1
    drop_letter(numbers[i])
  end
end
return reply({ dropped, 0, #numbers, numbers[#numbers] or 0, outcome() })
