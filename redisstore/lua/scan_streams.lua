-- Goes through the records of streams. Batches: call again with the returned cursor until it is "0".
-- count: about how many.
-- Returns { next cursor, { path, record, tail noted or "", … } }. O(batch).
local cursor, count = unpack(ARGV, A)
local scan = batch('HSCAN', P .. 'known', cursor, count)
local found = {}
for i = 1, #scan[2], 2 do
  found[#found + 1] = scan[2][i]
  found[#found + 1] = scan[2][i + 1]
  found[#found + 1] = tail_of(scan[2][i])
end
return reply(scan[1], found)
