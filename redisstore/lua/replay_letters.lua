-- Has dead letters replayed, those that came first, unless they wait for that already.
-- ARGV[9] subscription, "" for all  ARGV[10] first number  ARGV[11] last number  ARGV[12] how many are looked at at most
-- Returns { how many are to be replayed, how many cannot be, the number of the last one that was looked at, 0 for none, outcome }.
-- O(letters looked at + links that one script may read).
local queued, refused, last = 0, 0, 0
for _, n in ipairs(letters_of(ARGV[A], ARGV[A + 1], ARGV[A + 2], ARGV[A + 3])) do
  last = n
  local letter = letter_of(n)
  local id = letter and (string.match(letter.c, '^([^:]*:[^:]*):') or letter.c)
  local c = id and load(id)
  if c and not is_dead(c.gen) and replays(c, letter) then
    queued = queued + 1
    redis.call('ZADD', P .. 'r:' .. id, n, n)
    replay_next(c)
  else
    refused = refused + 1
  end
end
return reply({ queued, refused, last, outcome() })
