-- A stream was made anew under an old name: its tail moved back. Its own consumers are replaced by new ones, those that
-- subscribed to it start over. All at once, because acks and tail must change together.
-- ARGV[9] path  ARGV[10] the tail noted that was compared  ARGV[11] the new tail
-- Returns the outcome; nothing happens if the tail noted is another by now. O(consumers of the stream).
local path, was, tail = ARGV[A], ARGV[A + 1], ARGV[A + 2]
if tail_of(path) ~= was then return outcome() end
local ids = redis.call('SMEMBERS', P .. 'w:' .. path)
if #ids == 0 then return outcome() end
set_tail(path, tail)
for _, id in ipairs(ids) do
  local c = load(id)
  if c and not is_dead(c.gen) then
    if c.primary == path then
      local epoch = c.epoch
      remove(c)
      c = create(c.sub, c.gen, id, path, '-1')
      c.epoch = epoch
      set_tail(path, tail)
      settle(c)
      save(c)
    elseif links(c)[path] then
      links(c)[path] = { acked = '-1', tail = tail }
      redis.call('HSET', P .. 'l:' .. id, path, '-1')
      over(c, 'restarted')
      c.state, c.attempt, c.sent = 'idle', 0, 0
      came_idle(c)
      settle(c)
      save(c)
    end
  end
end
return outcome()
