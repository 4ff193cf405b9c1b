-- Lists events that were handed over, the latest first.
-- ARGV[5] the fsm.OutboxPlace that they stand before, "" for the end  ARGV[6] since when they were handed over, as such
-- a place begins  ARGV[7] how many at most of each list  ARGV[8…] names of lists.
-- Returns the places in each list { place, … }. O(lists × (log n + places)).
local most, found = ARGV[A] == '' and '+' or '(' .. ARGV[A], {}
for i = A + 3, #ARGV do
  local list = P .. 'events:' .. ARGV[i]
  for _, place in ipairs(redis.call('ZREVRANGEBYLEX', list, most, '[' .. ARGV[A + 1], 'LIMIT', 0, ARGV[A + 2])) do
    found[#found + 1] = place
  end
end
return reply(found)
