-- Lists events that were handed over, the latest first.
-- before: the fsm.OutboxPlace that they stand before, "" for the end  since: since when they were handed over, as such
-- a place begins  most: how many at most of each list. Then follow names of lists.
-- Returns the places in each list { place, … }. O(lists × (log n + places)).
local before, since, most = unpack(ARGV, A, A + 2)
local to, found = before == '' and '+' or '(' .. before, {}
for i = A + 3, #ARGV do
  local list = P .. 'events:' .. ARGV[i]
  for _, place in ipairs(redis.call('ZREVRANGEBYLEX', list, to, '[' .. since, 'LIMIT', 0, most)) do
    found[#found + 1] = place
  end
end
return reply(found)
