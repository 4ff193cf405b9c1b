-- Books a failed delivery attempt. The events that it has brought may step aside.
-- ARGV[5] consumer  ARGV[6] epoch  ARGV[7] wake id  ARGV[8] handed  ARGV[9] the least wait asked for, ms.
-- ARGV[10] 1 if the endpoint answered 410  ARGV[11] why it failed, in a few words  ARGV[12] the profile from now on.
-- ARGV[13] how many events, or bytes, the attempt has brought  ARGV[14] the position behind the last of them.
-- ARGV[15] fsm.Delivered.Within  ARGV[16] how far the stream goes, as reading has shown; "" if nothing can step aside.
-- ARGV[17] the event that was handed over, "" if it is none  ARGV[18] the status of the answer, 0 without one.
-- Returns the outcome. Nothing happens unless this attempt is out. O(1), or O(links) if the consumer is given up or
-- events step aside.
local c = current(load, ARGV[A], ARGV[A + 1], ARGV[A + 2])
if not c then
  repeated(load(ARGV[A]))
elseif attempt_out(c, ARGV[A + 3]) then
  local retry_after, retired, why = tonumber(ARGV[A + 4]), ARGV[A + 5] == '1', ARGV[A + 6]
  local profile, span, to, within = ARGV[A + 7], ARGV[A + 8], ARGV[A + 9], ARGV[A + 10]
  if ARGV[A + 11] ~= '' then note(c, c.primary, ARGV[A + 11]) end
  local event, by, attempts = ARGV[A + 12], c.id, c.attempt
  if not retired and steps_aside(c, profile, to, within) then
    by = step_aside(c, retry_after, why, profile, span, to, within)
  else
    failed(c, retry_after, retired, why, profile, span)
    save(c)
  end
  if event ~= '' then event_failed(event, by, attempts, why, ARGV[A + 13]) end
end
return reply(outcome())
