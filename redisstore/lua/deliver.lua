-- Takes in that the events of an attempt were delivered, or are dead. The consumer goes on behind them.
-- to: the position behind the last event  tail: how far the stream goes, as reading has shown.
-- profile: from now on  within: fsm.Delivered.Within  letter: dead letter of the events, "" if they were delivered.
-- handed: if nothing was sent, how often the wake was handed out; otherwise "". Such a report counts only if this
-- attempt is out (fsm.Delivered.Unsent).
-- event: the one that was handed over, "" if it is none  reason: why it is dead.
-- status: of the answer, 0 without one  owner: fsm.Consumer.Owner.
-- O(links of the consumer).
local consumer, epoch, wake, path, to, tail, profile, within, letter, handed, event, reason, status,
  owner = unpack(ARGV, A)
local c = current(load, consumer, epoch, wake)
if not c then
  local again = load(consumer)
  local next_replay = not again and owner ~= '' and redis.call('HGET', P .. 'f:' .. owner, 'replaying')
  repeated(again or next_replay and load(aside_id(owner, next_replay))) -- the one after the replay that the call ended
elseif handed == '' or attempt_out(c, handed) then
  local failing, attempts = c.failing, math.max(c.attempt, 1)
  delivered(c)
  put_profile(c, profile)
  to = behind(c, to, within)
  note(c, path, tail)
  local l = links(c)[path]
  if l and not after(to, l.tail) and ack(c, path, to) then
    if letter ~= '' then keep_letters(c, { int(failing), letter }) end
    if event ~= '' then event_over(event, attempts, letter ~= '', reason, status) end
  end
  finished(c)
  if c.replay > 0 and redis.call('EXISTS', P .. 'c:' .. c.id) == 0 then replay_over(c.owner, int(c.replay)) end
end
return reply()
