-- Drops an event that was delivered or cancelled long enough ago. Its key must be gone. ARGV[5] id of the event.
-- Returns 1 if it was dropped, otherwise 0. O(log n).
return reply(forget_expired(ARGV[A]) and '1' or '0')
