-- Asks whether a delivery may begin. Global; it begins with changed.lua and endpoint.lua, which lists the common
-- arguments and the reply.
-- patience: how long the delivery may be out at most, ms.
-- It says yes if the delivery may begin. If the endpoint is down, the delivery is a probe, and next is its slot.
-- O(log changes).
local patience = ARGV[7]
local e = endpoint()
if math.max(e.pause, paused()) > now or is_down(e) and e.next > now then return endpoint_reply(e) end
if not is_down(e) then return endpoint_reply(e, true) end
e.probing, e.next = 1, now + tonumber(patience)
return put_endpoint(e, true)
