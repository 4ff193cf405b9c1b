-- Has dead letters replayed, those that came first, unless they wait for that already.
-- ARGV[9] subscription, "" for all  ARGV[10] stream, "" for all  ARGV[11] first number  ARGV[12] last number
-- ARGV[13] how many are looked at at most
-- Returns { how many are to be replayed, how many cannot be, how many were looked at, the number of the last of these, 0 for none,
-- outcome }. O(letters looked at + links that one script may read).
local queued, refused, numbers = 0, 0, letters_of(ARGV[A], ARGV[A + 2], ARGV[A + 3], ARGV[A + 4])
for _, n in ipairs(numbers) do
  local letter = letter_of(n)
  if is_of(letter, ARGV[A + 1]) then
    local c = letter and load(receiver_of(letter))
    if c and not is_dead(c.gen) and replays(c, letter) then
      queued = queued + 1
      queue(c, n)
    else
      refused = refused + 1
    end
  end
end
return reply({ queued, refused, #numbers, numbers[#numbers] or 0, outcome() })
