-- An operator asks for deliveries now. Global; it begins with changed.lua and endpoint.lua, which lists the common
-- arguments and the reply. If the endpoint has asked to wait, that wait is over, and so is the pause of its origin. If
-- the endpoint is down, the next probe may begin, unless one is out. If it is not down, its failures no longer count.
-- It says yes if the endpoint is in trouble or its origin was paused. O(log changes).
local e, ended = endpoint(), redis.call('ZREM', pauses_key, origin) == 1
if not e.version then
  if ended then new_version() end
  return endpoint_reply(e, ended)
end
e.pause = 0
if is_down(e) and e.probing == 0 then e.next = now end
if not is_down(e) then e.failures, e.since, e.refused, e.reason = 0, 0, 0, '' end
return put_endpoint(e, true)
