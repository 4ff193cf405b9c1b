-- A delivery failed that may be tried again. Global; it begins with changed.lua and endpoint.lua, which says what it gets and returns.
-- ARGV[6] least wait asked for, ms
-- Nothing happens if the subscription is gone, or if there is no news in it. O(log changes).
local e, pause = endpoint(), tonumber(ARGV[6])
local till = pause > 0 and now + math.min(pause, RETRY_AFTER_MAX) or 0
if till <= e.pause or not is_listed() then return endpoint_reply(e) end
e.pause = till
return put_endpoint(e)
