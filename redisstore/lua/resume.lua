-- Lets consumers of a subscription be delivered to again whose endpoint answered 410. Batches: call again with the
-- returned cursor until it is "0".
-- ARGV[9] subscription  ARGV[10] generation  ARGV[11] cursor
-- Returns the next cursor. O(batch).
local scan = batch('SSCAN', P .. 'b:' .. ARGV[A] .. ':' .. ARGV[A + 1], ARGV[A + 2], 50)
for _, id in ipairs(scan[2]) do
  local c = load(id)
  if c and c.retired == 1 then
    delivered(c)
    if c.state == 'waking' and c.hidden == 0 then c.due = now end
    save(c)
  end
end
return scan[1]
