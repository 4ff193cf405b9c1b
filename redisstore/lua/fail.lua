-- Books a failed delivery attempt. The events that it has brought may step aside.
-- retry_after: the least wait asked for, ms  retired: 1 if the endpoint answered 410  profile: from now on.
-- span: how many events, or bytes, the attempt has brought  to: the position behind the last of them.
-- within: fsm.Delivered.Within  tail: how far the stream goes, as reading has shown; "" if nothing can step aside.
-- event: the one that was handed over, "" if it is none  status: of the answer, 0 without one.
-- Nothing happens unless this attempt is out. O(1), or O(links) if the consumer is given up or
-- events step aside.
local consumer, epoch, wake, handed, retry_after, retired, reason, profile, span, to, within, tail, event, status =
  unpack(ARGV, A)
retry_after, retired = tonumber(retry_after), retired == '1'
local c = current(load, consumer, epoch, wake)
if not c then
  repeated(load(consumer))
elseif attempt_out(c, handed) then
  if tail ~= '' then note(c, c.primary, tail) end
  local by, attempts = c.id, c.attempt
  if not retired and steps_aside(c, profile, to, within) then
    by = step_aside(c, retry_after, reason, profile, span, to, within)
  else
    failed(c, retry_after, retired, reason, profile, span)
    save(c)
  end
  if event ~= '' then event_failed(event, by, attempts, reason, status) end
end
return reply()
