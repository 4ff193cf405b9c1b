-- The stream server does not have a stream of events any more. Once its removal has taken OUTBOX_REMOVAL, events in a
-- stream of its name are new again.
-- Returns 1 if the removal is over, otherwise 0. O(log n).
local path = ARGV[A]
local since = -tonumber(redis.call('ZSCORE', P .. 'event_streams', path) or '0')
if since <= 0 or now() < since + FSM.OUTBOX_REMOVAL then return reply('0') end
redis.call('ZREM', P .. 'event_streams', path)
return reply('1')
