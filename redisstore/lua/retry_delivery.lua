-- Makes the next attempt of a wake due at once (spec.Retry).
-- ARGV[5] consumer  ARGV[6] epoch  ARGV[7] wake id.
-- Returns 1 if an attempt has waited, otherwise 0, for example if the wake is over. O(1).
local c = current(record, ARGV[A], ARGV[A + 1], ARGV[A + 2])
if not c or not waits(c) then return reply(0) end
c.due = now
set_nudged(c, 0)
save(c)
return reply(1)
