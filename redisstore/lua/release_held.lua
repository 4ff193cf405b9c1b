-- Makes the attempts due at once that wait for their endpoint, which is up again, or for a consent, which has come
-- (spec.ReleaseHeld). Batches: call again with the returned cursor until it is "0".
-- why: the reason to wait that has ended.
-- Returns the next cursor. O(batch).
local sub, gen, why, cursor = unpack(ARGV, A)
local next_cursor = visit(P .. 'b:' .. sub .. ':' .. gen, cursor, function(id)
  local c = record(id)
  if not c or not waits(c) then return end
  local held = held_of(c)
  if why == 'consent' then
    if held ~= 'consent' then return end
  elseif stays(held) then
    return
  elseif c.attempt > 0 then
    local nudged, probed = nudged_of(c)
    if nudged == 0 then
      set_nudged(c, c.due)
    elseif nudged <= now() then
      return
    end
    if probed then set_nudged(c, nudged) end
  end
  c.due = now()
  save(c)
end)
return reply(next_cursor)
