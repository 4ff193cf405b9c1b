-- Hides the consumers whose primary stream upstream says is gone, until it is observed again or the grace is over.
-- Batches: call again with the returned cursor until it is "0".
-- ARGV[9] path  ARGV[10] cursor
-- Returns { found 0|1, next cursor }. O(batch).
local path = ARGV[A]
local scan = redis.call('SSCAN', P .. 'w:' .. path, ARGV[A + 1], 'COUNT', 50)
local found = 0
for _, id in ipairs(scan[2]) do
  local c = load(id)
  if c and c.primary == path then
    found = 1
    if c.hidden == 0 then
      c.hidden, c.due = now, now + GRACE
      save(c)
    end
  end
end
return { found, scan[1] }
