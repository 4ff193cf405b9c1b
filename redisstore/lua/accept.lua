-- An attempt was answered 2xx without "done".
-- ARGV[9] consumer  ARGV[10] epoch  ARGV[11] wake id.
-- Returns the outcome. O(1).
local c = current(record, ARGV[A], ARGV[A + 1], ARGV[A + 2])
if c then
  delivered(c)
  if c.state == 'waking' then go_live(c) end
  save(c)
end
return reply(outcome())
