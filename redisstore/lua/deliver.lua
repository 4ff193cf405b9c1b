-- Takes in that the events of an attempt were delivered, or are dead. The consumer goes on behind them.
-- ARGV[5] consumer  ARGV[6] epoch  ARGV[7] wake id  ARGV[8] path  ARGV[9] the position behind the last event.
-- ARGV[10] how far the stream goes, as reading has shown  ARGV[11] the profile from now on.
-- ARGV[12] fsm.Delivered.Within  ARGV[13] the dead letter that the events leave, "" if they were delivered.
-- ARGV[14] if nothing was sent, how often the wake was handed out; otherwise "". Such a report counts only if this
-- attempt is out (fsm.Delivered.Unsent).
-- ARGV[15] the event that was handed over, "" if it is none  ARGV[16] why it is dead.
-- ARGV[17] the status of the answer, 0 without one.
-- Returns the outcome. O(links of the consumer).
local c = current(load, ARGV[A], ARGV[A + 1], ARGV[A + 2])
if not c then
  local again = load(ARGV[A])
  local owner = not again and redis.call('GET', P .. 'n:' .. NONCE)
  local next_replay = owner and redis.call('HGET', P .. 'f:' .. owner, 'replaying')
  repeated(again or next_replay and load(aside_id(owner, next_replay)))
elseif ARGV[A + 9] == '' or attempt_out(c, ARGV[A + 9]) then
  local failing, letter, attempts = c.failing, ARGV[A + 8], math.max(c.attempt, 1)
  delivered(c)
  put_profile(c, ARGV[A + 6])
  local path, to = ARGV[A + 3], behind(c, ARGV[A + 4], ARGV[A + 7])
  note(c, path, ARGV[A + 5])
  local l = links(c)[path]
  if l and not after(to, l.tail) and ack(c, path, to) then
    if letter ~= '' then keep_letters(c, { int(failing), letter }) end
    if ARGV[A + 10] ~= '' then event_over(ARGV[A + 10], attempts, letter ~= '', ARGV[A + 11], ARGV[A + 12]) end
  end
  finished(c)
  if c.replay > 0 and redis.call('EXISTS', P .. 'c:' .. c.id) == 0 then
    redis.call('SET', P .. 'n:' .. NONCE, c.owner, 'PX', REPEATED)
    replay_over(c.owner, int(c.replay))
  end
end
return reply(outcome())
