-- The attempt handed out waits for a free slot and was not begun.
-- ARGV[9] consumer  ARGV[10] epoch  ARGV[11] wake id  ARGV[12] attempt
-- Returns the outcome; nothing happens unless this very attempt is out. O(1).
local c = current(ARGV[A], ARGV[A + 1], ARGV[A + 2])
if c and c.state == 'waking' and c.sent == 1 and c.attempt == tonumber(ARGV[A + 3]) and c.hidden == 0 then
  c.attempt, c.sent, c.due = c.attempt - 1, 0, now + PARK
  save(c)
end
return outcome()
