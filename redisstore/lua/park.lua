-- The attempt handed out was not begun: it waits, unless begin.lua hands it out. If it is parked already, it waits from now on.
-- ARGV[9] consumer  ARGV[10] epoch  ARGV[11] wake id  ARGV[12] attempt  ARGV[13] how long, ms
-- Returns the outcome; nothing happens unless this very attempt is out or parked. O(1).
local c = current(record, ARGV[A], ARGV[A + 1], ARGV[A + 2])
local attempt = tonumber(ARGV[A + 3])
if c and c.state == 'waking' and c.hidden == 0 then
  local out = c.sent == 1 and c.attempt == attempt
  if out or c.sent == 0 and c.retired == 0 and c.attempt == attempt - 1 then
    c.attempt, c.sent, c.due = attempt - 1, 0, now + tonumber(ARGV[A + 4])
    save(c)
  end
end
return unchanged(outcome())
