-- The list of subscriptions and its version, of one moment. Global.
-- KEYS[1] hash id -> subscription as JSON  KEYS[2] version of that hash
-- Returns { version, { JSON, … } }. O(subscriptions).
return { redis.call('GET', KEYS[2]) or '0', redis.call('HVALS', KEYS[1]) }
