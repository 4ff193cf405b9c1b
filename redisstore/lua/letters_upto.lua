-- Counts the dead letters of a subscription up to a number.
-- ARGV[9] subscription  ARGV[10] number.
-- Returns how many there are. O(log letters).
return reply(redis.call('ZCOUNT', P .. 'dead:' .. ARGV[A], '-inf', ARGV[A + 1]))
