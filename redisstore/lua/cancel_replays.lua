-- Empties the replay queue of a consumer, and ends the replay that is under way.
-- Returns how much was in the queue. O(1): a background thread of Redis frees the queue.
local consumer = ARGV[A]
local c, n = load(consumer), 0
if c then
  n = redis.call('ZCARD', P .. 'r:' .. c.id)
  local number = redis.call('HGET', P .. 'f:' .. c.id, 'replaying')
  local aside = number and record(aside_id(c.id, number))
  if aside then remove(aside) end
  redis.call('UNLINK', P .. 'r:' .. c.id, P .. 'rs:' .. c.id)
  redis.call('ZREM', P .. 'replays', c.id)
  redis.call('HDEL', P .. 'f:' .. c.id, 'replaying', 'replayed')
end
return reply(n)
