-- Returns the delayed events whose time has come, the first of them first: { id, … }. ARGV[9] how many to leave out.
-- ARGV[10] how many at most. O(log n + events).
return unchanged(redis.call('ZRANGEBYSCORE', P .. 'delayed', '-inf', int(now), 'LIMIT', ARGV[A], ARGV[A + 1]))
