-- Counts events by their present status. It counts those that are not over one by one, in batches. Call again with the
-- place that it returns until it is "", and add up.
-- at: the fsm.OutboxPlace behind which it counts, "" for all  most: how many at most.
-- Returns { place of the last one that was counted or "" at the end, since when the oldest waits or 0, ms, pending,
-- delivering, retrying, delivered, dead, cancelled }. O(events counted, and expired).
local at, most = unpack(ARGV, A)
local list = redis.call('ZRANGEBYLEX', P .. 'events:open', at == '' and '-' or '(' .. at, '+', 'LIMIT', 0, most)
local n, oldest = { pending = 0, delivering = 0, retrying = 0, delivered = 0, dead_letter = 0, cancelled = 0 }, 0
for _, placed in ipairs(list) do
  local id = string.match(placed, ' (.*)$')
  local r = redis.call('HMGET', P .. 'event:' .. id, 'status', 'consumer', 'at', 'delivered', 'deliver_at')
  local status = event_status(unpack(r))
  local till = (r[4] or '0') ~= '0' and redis.call('ZSCORE', P .. 'expire', id) -- it was delivered before
  if till and tonumber(till) <= now() then status = nil end
  if n[status] then n[status] = n[status] + 1 end
  local waits = status == 'pending' or status == 'delivering' or status == 'retrying'
  local since = begins_at(placed, r[5])
  if waits and tonumber(r[5] or '0') <= now() and (oldest == 0 or since < oldest) then oldest = since end
end
if at == '' then
  for _, status in ipairs({ 'delivered', 'dead_letter', 'cancelled' }) do
    n[status] = n[status] + redis.call('ZCARD', events_of(status))
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'expire', '-inf', int(now()))) do
    local status, placed = unpack(redis.call('HMGET', P .. 'event:' .. id, 'status', 'placed'))
    if placed and (status == 'delivered' or status == 'cancelled') then n[status] = n[status] - 1 end
  end
end
local last = #list == tonumber(most) and list[#list] or ''
return reply(last, int(oldest), n.pending, n.delivering, n.retrying, n.delivered, n.dead_letter, n.cancelled)
