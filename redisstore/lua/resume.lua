-- Resumes deliveries to consumers of a subscription. They are consumers whose endpoint answered 410, that were given
-- up, or whose next attempt was held back (spec.Resume). Batches: call again with the returned cursor until it
-- is "0".
-- A consumer in quarantine goes on if it can be read again.
-- lost: 1 if an earlier resumption may be lost: then nobody asks for this one.
-- Returns { next cursor, how many were resumed }. O(batch + links that one script may read).
local sub, gen, lost, cursor = unpack(ARGV, A)
lost = lost == '1'
local resumed, any = 0, redis.call('EXISTS', P .. 'quarantined') == 1

-- restore puts a consumer back on its lists.
local function restore(c)
  redis.call('HDEL', P .. 'quarantined', c.id)
  c.was_place, c.was_due, c.was_failing, c.was_hidden = '', -1, -1, -1
  if c.state == 'waking' and c.retired == 0 then c.sent, c.due = 0, now() end
  if c.state == 'live' then c.due = now() + LIVENESS end
  wake_if_pending(c)
  save(c)
end

local next_cursor = visit(P .. 'b:' .. sub .. ':' .. gen, cursor, function(id)
  local was = any and is_quarantined(id)
  if was and lost then return end
  local c = load(id)
  if was and c then
    restore(c)
    resumed = resumed + 1
    return
  end
  local waits = c and c.state == 'waking' and c.sent == 0 and c.handed > 0 and c.retired == 0 and c.hidden == 0
  local held_back = waits and (c.attempt == 0 or c.parked > 0) and c.due > now()
  if held_back and not stays(held_of(c)) or held_back and lost and held_of(c) == 'consent' then
    c.due = now()
  elseif c and c.state == 'given_up' then
    if lost then return end
    revive(c)
    wake_if_pending(c)
  elseif c and c.retired == 1 then
    delivered(c)
    c.attempt = 0
    if c.state == 'waking' and c.hidden == 0 then c.due = now() end
  else
    return
  end
  resumed = resumed + 1
  save(c)
end)
return reply(next_cursor, resumed)
