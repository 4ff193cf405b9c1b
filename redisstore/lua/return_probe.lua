-- A probe is over that was neither taken nor failed. Global; it begins with changed.lua and endpoint.lua, which says what it gets and returns.
-- ARGV[6] slot of the probe  ARGV[7] 1 if it was sent, otherwise 0
-- Nothing happens unless this very probe is out. O(log changes).
local e = endpoint()
if not is_out(e, tonumber(ARGV[6])) then return endpoint_reply(e) end
e.probing, e.next = 0, now
if ARGV[7] == '1' then e.probes, e.next = 0, now + probe_pause(0) end
return put_endpoint(e)
