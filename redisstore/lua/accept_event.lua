-- Takes in that an event lies in its stream, so that it is delivered from now on.
-- event: its id  text: the event as JSON, without its payload  placed: its fsm.OutboxPlace  retention: ms.
-- deliver_at: 0 for none.
-- Returns 1, 0 if the event is kept already: it stays as it is, or -1 if its stream is being removed. O(log n).
local event, text, placed, provider, retention, deliver_at, path, consumer = unpack(ARGV, A)
forget_expired(event)
local status = redis.call('HGET', P .. 'event:' .. event, 'status')
if status and status ~= 'expired' then return reply('0') end
if is_removing(path) then return reply('-1') end
local c = peek(consumer)
local by, place = c and consumer or '', c and place_in_stream(c) or ''
keep_event(event, text, placed, provider, retention, deliver_at, path, by, place)
return reply('1')
