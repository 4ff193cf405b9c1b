-- Drops an event that was delivered long enough ago. Its key must be gone. ARGV[9] id of the event.
-- Returns 1 if it was dropped, otherwise 0. O(log n).
local score = redis.call('ZSCORE', P .. 'expire', ARGV[A])
if not score or tonumber(score) > now then return unchanged('0') end
redis.call('ZREM', P .. 'expire', ARGV[A])
redis.call('DEL', P .. 'event:' .. ARGV[A])
return unchanged('1')
