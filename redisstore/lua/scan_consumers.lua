-- Goes through the consumers of a subscription. Batches: call again with the returned cursor until it is "0".
-- ARGV[9] subscription  ARGV[10] generation  ARGV[11] cursor  ARGV[12] about how many
-- Returns { next cursor, { { consumer, field, value, … }, … } }. O(batch).
local sub, gen = ARGV[A], ARGV[A + 1]
if is_dead(gen) then return unchanged({ '0', {} }) end
local scan = batch('SSCAN', P .. 'b:' .. sub .. ':' .. gen, ARGV[A + 2], ARGV[A + 3])
local found = {}
for _, id in ipairs(scan[2]) do
  local raw = redis.call('HGETALL', P .. 'c:' .. id)
  if #raw > 0 then
    table.insert(raw, 1, id)
    found[#found + 1] = raw
  end
end
return unchanged({ scan[1], found })
