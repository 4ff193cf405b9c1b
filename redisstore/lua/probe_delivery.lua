-- Makes the next attempt of a wake due at once, to find out whether its endpoint is up again (spec.Probe).
-- Returns 1 if an attempt has waited, otherwise 0, for example if the wake is over. O(1).
local consumer, epoch, wake = unpack(ARGV, A)
local c = current(record, consumer, epoch, wake)
if not c or not waits(c) then return reply(0) end
if c.attempt > 0 then
  local nudged = nudged_of(c)
  if nudged > now() then
    set_nudged(c, nudged, true)
  elseif c.parked == 0 then
    set_nudged(c, c.due, true)
  end
end
c.due = now()
save(c)
return reply(1)
