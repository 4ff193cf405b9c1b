-- Drops an event that was delivered or cancelled long enough ago. Its key must be gone. event: its id.
-- Returns 1 if it was dropped, otherwise 0. O(log n).
local event = ARGV[A]
return reply(forget_expired(event) and '1' or '0')
