-- The first attempt of each wake of a subscription that was held back is due at once (fsm.Consumer.ReleaseHeld). Batches: call again
-- with the returned cursor until it is "0".
-- ARGV[9] subscription  ARGV[10] generation  ARGV[11] cursor
-- Returns { next cursor, outcome }. O(batch).
local next_cursor = visit(P .. 'b:' .. ARGV[A] .. ':' .. ARGV[A + 1], ARGV[A + 2], function(id)
  local c = record(id)
  if c and c.state == 'waking' and c.sent == 0 and c.attempt == 0 and c.retired == 0 and c.hidden == 0 and c.due > now then
    c.due = now
    save(c)
  end
end)
return unchanged({ next_cursor, outcome() })
