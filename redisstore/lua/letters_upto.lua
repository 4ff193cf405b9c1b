-- Counts the dead letters of a subscription up to a number.
-- ARGV[5] subscription  ARGV[6] number.
-- Returns how many there are. O(log letters).
return reply(redis.call('ZCOUNT', P .. 'dead:' .. ARGV[A], '-inf', ARGV[A + 1]))
