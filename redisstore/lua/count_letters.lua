-- Counts dead letters.
-- Returns { number of the last letter, 0 for none, { subscription, how many it has, … } }. Only subscriptions that have
-- letters are in the list. O(these subscriptions).
return unchanged({ redis.call('ZRANGE', P .. 'dead', -1, -1)[1] or 0, redis.call('HGETALL', P .. 'dead_counts') })
