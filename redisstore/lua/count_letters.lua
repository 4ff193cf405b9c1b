-- Counts dead letters.
-- Returns { the number of the last one, 0 for none, a subscription and how many it has, by turns, of those that have some }.
-- O(these subscriptions).
return unchanged({ redis.call('ZRANGE', P .. 'dead', -1, -1)[1] or 0, redis.call('HGETALL', P .. 'dead_counts') })
