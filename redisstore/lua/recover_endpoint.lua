-- A delivery was answered with a 2xx. Global; it begins with changed.lua and endpoint.lua, which says what it gets and returns.
-- A pause that the endpoint has asked for goes on. O(log changes).
local e = endpoint()
if not e.version or e.pause > now then return endpoint_reply(e) end
e.pause = 0
return put_endpoint(e)
