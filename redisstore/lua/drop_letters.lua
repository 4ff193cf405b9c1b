-- Drops dead letters, those that came first.
-- ARGV[9] subscription, "" for all  ARGV[10] first number  ARGV[11] last number  ARGV[12] how many at most
-- Returns how many it has dropped. O(letters dropped).
local numbers = letters_of(ARGV[A], ARGV[A + 1], ARGV[A + 2], ARGV[A + 3])
for _, n in ipairs(numbers) do drop_letter(n) end
return unchanged(#numbers)
