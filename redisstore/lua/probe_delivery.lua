-- Makes the next attempt of a wake due at once, to find out whether its endpoint is up again (spec.Probe).
-- ARGV[5] consumer  ARGV[6] epoch  ARGV[7] wake id.
-- Returns 1 if an attempt has waited, otherwise 0, for example if the wake is over. O(1).
local c = current(record, ARGV[A], ARGV[A + 1], ARGV[A + 2])
if not c or not waits(c) then return reply(0) end
if c.attempt > 0 then
  local nudged = nudged_of(c)
  if nudged > now then
    set_nudged(c, nudged, true)
  elseif c.parked == 0 then
    set_nudged(c, c.due, true)
  end
end
c.due = now
save(c)
return reply(1)
