-- Queues dead letters for replay, the first ones first, unless they are in the queue already. If a letter was left by a
-- consumer that was given up, that consumer goes on instead.
-- sub, consumer: "" for all  from: first number  through: last number  most: how many letters it looks at, at most.
-- Returns { queued, refused, looked at, last }. `last` is the number of the last letter that it looked at, 0
-- for none. O(letters looked at + links that one script may read).
local sub, consumer, from, through, most = unpack(ARGV, A)
local queued, refused, looked, last = 0, 0, 0, 0
-- replay begins the replay of a consumer's dead letter. It returns true if that is possible.
local function replay(id, n, letter)
  local c = load(id)
  if c and not is_dead(c.gen) and redis.call('HGET', P .. 'f:' .. id, 'letter') == n then
    revive(c)
    wake_if_pending(c)
    save(c)
    return true
  elseif c and not is_dead(c.gen) and replays(c, letter) then
    queue(c, n)
    return true
  end
end
for _, n in ipairs(letters_of(sub, from, through, most)) do
  local letter = letter_of(n)
  local id = letter and letter.c
  if id and not can_read(id) then break end
  looked, last = looked + 1, n
  if is_of(letter, consumer) then
    if id and apart(replay, id, n, letter) then queued = queued + 1 else refused = refused + 1 end
  end
end
return reply(queued, refused, looked, last)
