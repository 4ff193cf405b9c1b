-- Returns the delayed events whose time has come, the first of them first: { id, … }. Each comes up again after
-- OUTBOX_PUT_OFF, unless it is released (spec.PutOff). most: how many at most. O(events × log n).
local most = ARGV[A]
local due = redis.call('ZRANGEBYSCORE', P .. 'delayed', '-inf', int(now()), 'LIMIT', 0, most)
for _, id in ipairs(due) do redis.call('ZADD', P .. 'delayed', int(now() + FSM.OUTBOX_PUT_OFF), id) end
return reply(due)
