-- Has dead letters replayed, those that came first, unless they wait for that already. That of a consumer that was given up has it go on.
-- ARGV[9] subscription, "" for all  ARGV[10] consumer, "" for all  ARGV[11] first number  ARGV[12] last number
-- ARGV[13] how many are looked at at most
-- Returns { how many are to be replayed, how many cannot be, how many were looked at, the number of the last of these, 0 for none,
-- outcome }. O(letters looked at + links that one script may read).
local queued, refused, looked, last = 0, 0, 0, 0
-- replay says whether a dead letter of a consumer is to be replayed.
local function replay(id, n, letter)
  local c = load(id)
  if c and not is_dead(c.gen) and redis.call('HGET', P .. 'c:' .. id, 'letter') == n then
    revive(c)
    wake_if_pending(c)
    save(c)
    return true
  elseif c and not is_dead(c.gen) and replays(c, letter) then
    queue(c, n)
    return true
  end
end
for _, n in ipairs(letters_of(ARGV[A], ARGV[A + 2], ARGV[A + 3], ARGV[A + 4])) do
  local letter = letter_of(n)
  local id = letter and receiver_of(letter)
  if id and not can_read(id) then break end
  looked, last = looked + 1, n
  if is_of(letter, ARGV[A + 1]) then
    if id and apart(replay, id, n, letter) then queued = queued + 1 else refused = refused + 1 end
  end
end
return reply({ queued, refused, looked, last, outcome() })
