-- The next attempt of each consumer of a subscription that waits for one, by its schedule or parked, is due at once. Batches: call
-- again with the returned cursor until it is "0".
-- ARGV[9] subscription  ARGV[10] generation  ARGV[11] cursor
-- Returns { next cursor, outcome }. O(batch).
local next_cursor = visit(P .. 'b:' .. ARGV[A] .. ':' .. ARGV[A + 1], ARGV[A + 2], function(id)
  local c = record(id)
  if c and c.state == 'waking' and c.sent == 0 and c.retired == 0 and c.hidden == 0 and c.due > now then
    c.due = now
    save(c)
  end
end)
return unchanged({ next_cursor, outcome() })
