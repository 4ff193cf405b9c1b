-- Notes through which version the streams on record are linked whose records have an earlier form, once.
-- ARGV[9] version of the list of subscriptions
-- Returns 1. O(1).
redis.call('HSETNX', P .. 'meta', 'linked', ARGV[A])
return unchanged(1)
