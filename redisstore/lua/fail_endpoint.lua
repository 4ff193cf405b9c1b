-- Books a failed delivery. Global; it begins with changed.lua and endpoint.lua, which lists the common arguments and
-- the reply.
-- ARGV[7] the least wait asked for, ms  ARGV[8] slot of the probe that the delivery was, 0 if it was none.
-- ARGV[9] 1 if it was refused for good  ARGV[10] 1 if it does not count against the endpoint  ARGV[11] why it failed.
-- It says yes if the endpoint is down since this failure. The wait holds for the origin, even if the subscription is
-- gone. Nothing else happens if it is gone or the failure is no news. O(log changes + pauses that are over).
local e, pause, probed, refused = endpoint(), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local till, was_down, out = pause > 0 and now + math.min(pause, FSM.RETRY_AFTER_MAX) or 0, is_down(e), is_out(e, probed)
local counts = refused == 0 and ARGV[10] == '0'
if refused == 1 then till = 0 end
local news = e.since == 0 or e.refused ~= refused or e.reason ~= ARGV[11] or till > e.pause
if counts then
  news = news or not was_down or out
else
  news = news or out and ARGV[10] == '0'
end
local longer = ARGV[6] ~= '' and till > paused()
if longer then
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', string.format('%.0f', now))
  redis.call('ZADD', KEYS[5], string.format('%.0f', till), ARGV[6])
end
if not news or not is_listed() then
  if longer then new_version() end
  return endpoint_reply(e)
end
if e.since == 0 then e.since = now end
e.refused, e.reason, e.pause = refused, ARGV[11], math.max(e.pause, till)
if not counts then
  if out and ARGV[10] == '0' then return_probe(e, true) end
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
