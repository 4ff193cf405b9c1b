-- A probe is over, and neither succeeded nor failed. Global; it begins with changed.lua and endpoint.lua, which lists
-- the common arguments and the reply.
-- ARGV[7] slot of the probe  ARGV[8] 1 if it was sent, otherwise 0.
-- Nothing happens unless this probe is out. O(log changes).
local e = endpoint()
if not is_out(e, tonumber(ARGV[7])) then return endpoint_reply(e) end
return_probe(e, ARGV[8] == '1')
return put_endpoint(e)
