-- Finds the consumer of a subscription whose next attempt has waited longest. Only consumers count that began to wait
-- after a given time. A consumer whose wake never failed comes before one whose wake failed. It looks at a number of
-- consumers of any subscription, and at as many asides. In each list, it looks at no more than FEW of the subscription.
-- later_than: that time, ms  most: how many to look at  passed: how many to pass over first.
-- Returns { since, consumer, primary, epoch, wake id, failed, more }. `since` is since when it waits, in ms. `failed`
-- is 1 if its wake has failed. `more` is 1 if there are more consumers to look at. The consumer is "" if there is none.
-- O(consumers that are looked at).
local sub, gen, later_than, most, passed = unpack(ARGV, A)
local FEW = 20
local prefix = sub .. ':'
local found, since, more = nil, 0, 0
for _, list in ipairs({ 'waiting', 'aside' }) do
  local raw = redis.call('ZRANGEBYSCORE', P .. list, '(' .. later_than, '+inf', 'WITHSCORES',
    'LIMIT', passed, most)
  if #raw >= 2 * most then more = 1 end
  local few = 0
  for i = 1, #raw, 2 do
    if few == FEW then break end
    if string.sub(raw[i], 1, #prefix) == prefix then
      few = few + 1
      local c, at = apart(record, raw[i]), tonumber(raw[i + 1])
      local waiting = c and c.gen == gen and waits(c)
      if waiting and (not found or found.attempt > 0 and (c.attempt == 0 or at < since)) then found, since = c, at end
      if waiting and c.attempt == 0 then break end
    end
  end
end
if not found or is_dead(found.gen) then return reply(0, '', '', 0, '', 0, more) end
return reply(int(since), found.id, found.primary, found.epoch, found.wake, found.attempt > 0 and 1 or 0, more)
