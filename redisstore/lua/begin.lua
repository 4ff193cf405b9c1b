-- A slot is free for an attempt that was parked.
-- ARGV[9] consumer  ARGV[10] epoch  ARGV[11] wake id
-- Returns the outcome, with the attempt's wake unless there is nothing to deliver any more or another call has handed it out.
-- O(links of the consumer).
local c = current(load, ARGV[A], ARGV[A + 1], ARGV[A + 2])
if c and c.state == 'waking' and c.sent == 0 and c.retired == 0 and c.hidden == 0 then
  hand_out(c)
  save(c)
end
return reply(outcome())
