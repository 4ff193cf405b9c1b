-- Resumes deliveries to consumers of a subscription whose endpoint answered 410, that were given up, or whose next attempt was held back
-- (fsm.Consumer.Resume). Batches: call again with the returned cursor until it is "0".
-- ARGV[9] subscription  ARGV[10] generation  ARGV[11] cursor
-- Returns { next cursor, how many were resumed, outcome }. O(batch + links that one script may read).
local resumed = 0
local next_cursor = visit(P .. 'b:' .. ARGV[A] .. ':' .. ARGV[A + 1], ARGV[A + 2], function(id)
  local c = load(id)
  local waits = c and c.state == 'waking' and c.sent == 0 and c.handed > 0 and c.retired == 0 and c.hidden == 0
  if waits and (c.attempt == 0 or c.parked > 0) and c.due > now then
    c.due = now
  elseif c and c.state == 'given_up' then
    revive(c)
    wake_if_pending(c)
  elseif c and c.retired == 1 then
    delivered(c)
    c.attempt = 0
    if c.state == 'waking' and c.hidden == 0 then c.due = now end
  else
    return
  end
  resumed = resumed + 1
  save(c)
end)
return reply({ next_cursor, resumed, outcome() })
