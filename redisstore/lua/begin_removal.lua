-- A stream of events is about to be removed from the stream server (spec.MayRemove): no event in it is new from now on.
-- tail: "" if the server does not have the stream.
-- Returns 1, or 0 if it stays. O(log n).
local path, consumer, tail = unpack(ARGV, A)
local kept, c = tonumber(redis.call('ZSCORE', P .. 'event_streams', path) or '1'), record(consumer)
local brought = c and c.state == 'idle' and acked_of(c, path) == tail and
  not redis.call('ZSCORE', P .. 'replays', c.id)
if kept > 0 then return reply('0') end
if tail == '' and kept < 0 then return reply('1') end -- it is gone since then
local goes = tail == '' or brought
if not goes and now() < FSM.OUTBOX_REMOVAL - kept then return reply('0') end -- what was begun may still be under way
redis.call('ZADD', P .. 'event_streams', goes and int(-now()) or '0', path)
return reply(goes and '1' or '0')
