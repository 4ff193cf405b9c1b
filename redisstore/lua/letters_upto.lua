-- Counts the dead letters of a subscription up to a number.
-- Returns how many there are. O(log letters).
local sub, through = unpack(ARGV, A)
return reply(redis.call('ZCOUNT', P .. 'dead:' .. sub, '-inf', through))
