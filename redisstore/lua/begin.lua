-- Hands out an attempt that was parked, or was handed out and not begun: a slot is free for it.
-- by: name of the caller.
-- The outcome has the attempt's wake, unless nothing is left to deliver or the attempt is another caller's.
-- The same call again returns the same attempt. O(links of the consumer).
local consumer, epoch, wake, handed, attempt, by = unpack(ARGV, A)
local c = load(consumer)
if c and c.state == 'waking' and c.retired == 0 and c.hidden == 0 and not is_dead(c.gen) then
  local function held_by() return int(c.epoch) .. ' ' .. int(c.handed) .. ' ' .. by end
  local out = c.sent == 1
  if out and redis.call('HGET', P .. 'f:' .. c.id, 'holder') == held_by() then
    c.due = now() + patience(c)
    ask_for_attempt(c)
    save(c)
  elseif c.epoch == tonumber(epoch) and c.wake == wake and c.handed == tonumber(handed) and
    (out or c.attempt == tonumber(attempt) - 1) then
    if out then c.attempt, c.sent = c.attempt - 1, 0 end
    hand_out(c)
    redis.call('HSET', P .. 'f:' .. c.id, 'holder', held_by())
    save(c)
  end
end
return reply()
