-- The stream server does not have a stream of events any more. Once its removal has taken OUTBOX_REMOVAL, events in a
-- stream of its name are new again.
-- Returns 1 if the removal is over, otherwise 0. O(log n).
local stream = ARGV[A]
local since = -tonumber(redis.call('ZSCORE', P .. 'event_streams', stream) or '0')
if since <= 0 or now() < since + FSM.OUTBOX_REMOVAL then return reply('0') end
redis.call('ZREM', P .. 'event_streams', stream)
return reply('1')
