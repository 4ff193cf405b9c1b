-- An attempt was answered 2xx without "done".
-- ARGV[5] consumer  ARGV[6] epoch  ARGV[7] wake id.
-- Returns the outcome. O(1).
local c = current(record, ARGV[A], ARGV[A + 1], ARGV[A + 2])
if c then
  delivered(c)
  if c.state == 'waking' then go_live(c) end
  save(c)
end
return reply(outcome())
