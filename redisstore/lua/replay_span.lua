-- Queues a span of a consumer's stream for replay, unless the span is in the queue already.
-- born: the epoch that the consumer was born with  from, to: fsm.ReplaySpan.
-- Returns the number of the replay. It is 0 if the consumer is gone or another one, and -1 if it has too many spans.
-- O(MAX_REPLAY_SPANS).
local consumer, born, from, to = unpack(ARGV, A)
local c, span = load(consumer), from .. ',' .. to
if not c or is_dead(c.gen) or int(c.born) ~= born then
  return reply(0)
end
local spans = redis.call('HGETALL', P .. 'rs:' .. c.id)
for i = 1, #spans, 2 do
  if spans[i + 1] == span then return reply(spans[i]) end
end
if #spans / 2 >= FSM.MAX_REPLAY_SPANS then return reply(-1) end
local n = int(next_stamp())
redis.call('HSET', P .. 'rs:' .. c.id, n, span)
queue(c, n)
return reply(n)
