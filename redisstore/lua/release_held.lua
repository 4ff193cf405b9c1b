-- Makes the attempts due at once that wait for their endpoint, which is up again (spec.ReleaseHeld). Batches:
-- call again with the returned cursor until it is "0".
-- ARGV[9] subscription  ARGV[10] generation  ARGV[11] cursor.
-- Returns { next cursor, outcome }. O(batch).
local next_cursor = visit(P .. 'b:' .. ARGV[A] .. ':' .. ARGV[A + 1], ARGV[A + 2], function(id)
  local c = record(id)
  if not c or not waits(c) or held_of(c) == 'rate' then return end
  if c.attempt > 0 then
    local nudged, probed = nudged_of(c)
    if nudged == 0 then
      set_nudged(c, c.due)
    elseif nudged <= now then
      return
    end
    if probed then set_nudged(c, nudged) end
  end
  c.due = now
  save(c)
end)
return unchanged({ next_cursor, outcome() })
