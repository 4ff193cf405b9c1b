-- A probe is over, and neither succeeded nor failed. Global; it begins with changed.lua and endpoint.lua, which lists
-- the common arguments and the reply.
-- slot: that of the probe  sent: 1 if it was sent, otherwise 0.
-- Nothing happens unless this probe is out. O(log changes).
local slot, sent = unpack(ARGV, 7)
local e = endpoint()
if not is_out(e, tonumber(slot)) then return endpoint_reply(e) end
return_probe(e, sent == '1')
return put_endpoint(e)
