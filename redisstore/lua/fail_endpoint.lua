-- Books a failed delivery. Global; it begins with changed.lua and endpoint.lua, which lists the common arguments and
-- the reply.
-- retry_after: the least wait asked for, ms  probe: slot of the probe that the delivery was, 0 if it was none.
-- refused: 1 if it was refused for good  shown: 1 if it does not count against the endpoint.
-- It says yes if the endpoint is down since this failure. The wait holds for the origin, even if the subscription is
-- gone. Nothing else happens if it is gone or the failure is no news. O(log changes + pauses that are over).
local retry_after, probe, refused, shown, reason = unpack(ARGV, 7)
retry_after, refused = tonumber(retry_after), tonumber(refused)
local e, till = endpoint(), retry_after > 0 and now + math.min(retry_after, FSM.RETRY_AFTER_MAX) or 0
local was_down, out, counts = is_down(e), is_out(e, tonumber(probe)), refused == 0 and shown == '0'
if refused == 1 then till = 0 end
local news = e.since == 0 or e.refused ~= refused or e.reason ~= reason or till > e.pause
if counts then
  news = news or not was_down or out
else
  news = news or out and shown == '0'
end
local longer = origin ~= '' and till > paused()
if longer then
  redis.call('ZREMRANGEBYSCORE', pauses_key, '-inf', string.format('%.0f', now))
  redis.call('ZADD', pauses_key, string.format('%.0f', till), origin)
end
if not news or not is_listed() then
  if longer then new_version() end
  return endpoint_reply(e)
end
if e.since == 0 then e.since = now end
e.refused, e.reason, e.pause = refused, reason, math.max(e.pause, till)
if not counts then
  if out and shown == '0' then return_probe(e, true) end
  return put_endpoint(e)
end
if not was_down then
  e.failures = e.failures + 1
  if is_down(e) then e.next = now + probe_pause(0) end
end
if out then
  if probe_pause(e.probes) < FSM.PROBE_PAUSE_MAX then e.probes = e.probes + 1 end
  e.probing, e.next = 0, now + probe_pause(e.probes)
end
return put_endpoint(e, is_down(e) and not was_down)
