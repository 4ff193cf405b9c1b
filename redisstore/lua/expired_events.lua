-- Returns the events that were delivered or cancelled long enough ago: { id, event as JSON, ... }.
-- most: how many at most. O(log n + events).
local most = ARGV[A]
local ids, found = redis.call('ZRANGEBYSCORE', P .. 'expire', '-inf', int(now()), 'LIMIT', 0, most), {}
for _, id in ipairs(ids) do
  found[#found + 1] = id
  found[#found + 1] = redis.call('HGET', P .. 'event:' .. id, 'event') or '{}'
end
return reply(found)
