-- A stream was deleted: its own consumers are removed, those that subscribed to it start over should it be made anew.
-- ARGV[9] path
-- Returns the outcome. O(consumers of the stream + links of those removed).
local path = ARGV[A]
for _, id in ipairs(redis.call('SMEMBERS', P .. 'w:' .. path)) do
  local c = load(id)
  if c then
    if c.primary == path then
      remove(c)
    elseif redis.call('HEXISTS', P .. 'l:' .. id, path) == 1 then
      redis.call('HSET', P .. 'l:' .. id, path, '-1')
    end
  end
end
redis.call('HDEL', P .. 's:' .. path, 't')
return outcome()
