-- Makes the next attempt of a wake due at once (spec.Retry).
-- Returns 1 if an attempt has waited, otherwise 0, for example if the wake is over. O(1).
local consumer, epoch, wake = unpack(ARGV, A)
local c = current(record, consumer, epoch, wake)
if not c or not waits(c) then return reply(0) end
c.due = now()
set_nudged(c, 0)
save(c)
return reply(1)
