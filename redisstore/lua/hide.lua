-- Hides the consumers whose primary stream upstream says is gone, until it is observed again, and removes those for which
-- that has been so for the grace. Batches: call again with the returned cursor until it is "0".
-- ARGV[9] path  ARGV[10] cursor  ARGV[11] what is known: 0 once missing, 1 missing anew, 2 missing still (fsm.Absence)
-- Returns { found 0|1, next cursor, outcome }. O(batch).
local path, absence = ARGV[A], ARGV[A + 2]
local scan = batch('SSCAN', P .. 'w:' .. path, ARGV[A + 1], 50)
local found = 0
for _, id in ipairs(scan[2]) do
  local c = load(id)
  if c and c.primary == path then
    found = 1
    if c.hidden == 0 or absence == '1' then
      c.hidden, c.due = now, now + GRACE
      save(c)
    elseif absence == '2' and now >= c.hidden + GRACE then
      -- Should the stream come back, it is a new one: discovery must not take it for linked.
      redis.call('HDEL', P .. 'known', path)
      remove(c)
    end
  end
end
return { found, scan[1], outcome() }
