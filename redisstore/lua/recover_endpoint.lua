-- A delivery was answered with a 2xx. Global; it begins with changed.lua and endpoint.lua, which lists the common
-- arguments and the reply. If the endpoint has asked to wait, that wait goes on. It says yes if the endpoint was down
-- until now. O(log changes).
local e = endpoint()
local was_down = is_down(e)
if not e.version or e.pause > now and e.failures == 0 and e.since == 0 then return endpoint_reply(e) end
e.pause = e.pause > now and e.pause or 0
e.failures, e.next, e.probing, e.probes, e.since, e.refused, e.reason = 0, 0, 0, 0, 0, 0, ''
return put_endpoint(e, was_down)
