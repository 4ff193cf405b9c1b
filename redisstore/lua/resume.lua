-- Resumes deliveries to consumers of a subscription whose endpoint answered 410, or that were given up. Batches: call again with
-- the returned cursor until it is "0".
-- ARGV[9] subscription  ARGV[10] generation  ARGV[11] cursor
-- Returns { next cursor, outcome }. O(batch + links that one script may read).
local next_cursor = visit(P .. 'b:' .. ARGV[A] .. ':' .. ARGV[A + 1], ARGV[A + 2], function(id)
  local c = load(id)
  if c and c.state == 'given_up' then
    revive(c)
    wake_if_pending(c)
    save(c)
  elseif c and c.retired == 1 then
    delivered(c)
    c.attempt = 0
    if c.state == 'waking' and c.hidden == 0 then c.due = now end
    save(c)
  end
end)
return reply({ next_cursor, outcome() })
