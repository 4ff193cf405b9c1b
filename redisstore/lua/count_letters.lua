-- Counts dead letters.
-- Returns a subscription and how many it has, by turns, of those that have some. O(these subscriptions).
return unchanged(redis.call('HGETALL', P .. 'dead_counts'))
