-- A delivery failed that may be tried again. Global; it begins with changed.lua and endpoint.lua, which says what it gets and returns.
-- ARGV[6] least wait asked for, ms  ARGV[7] slot of the probe that the delivery was, 0 if it was none
-- It says yes if the endpoint is down since. Nothing happens if the subscription is gone, or if there is no news in it. O(log changes).
local e, pause, probed = endpoint(), tonumber(ARGV[6]), tonumber(ARGV[7])
local till, was_down, out = pause > 0 and now + math.min(pause, RETRY_AFTER_MAX) or 0, is_down(e), is_out(e, probed)
if till <= e.pause and was_down and not out or not is_listed() then return endpoint_reply(e) end
e.pause = math.max(e.pause, till)
if not was_down then
  e.failures = e.failures + 1
  if is_down(e) then e.next = now + probe_pause(0) end
end
if out then
  if probe_pause(e.probes) < PROBE_PAUSE_MAX then e.probes = e.probes + 1 end
  e.probing, e.next = 0, now + probe_pause(e.probes)
end
return put_endpoint(e, is_down(e) and not was_down)
