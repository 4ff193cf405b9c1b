-- A stream was made anew under an old name: what it shows belies the end that was noted (fsm.Noted). Its own consumers
-- are replaced by new ones. Consumers that subscribed to it start over. Batches: call again with the returned cursor
-- until it is "0".
-- was: the tail noted that was compared  tail: the new one.
-- Returns the next cursor. Nothing happens if the tail noted is another one now.
-- O(batch + links that one script may read).
local path, was, tail, cursor = unpack(ARGV, A)
if cursor == '0' then
  if tail_of(path) ~= was or redis.call('EXISTS', P .. 'w:' .. path) == 0 then return reply('0') end
  note_old_tail(path)
  set_noted(path, tail)
  renew_stream(path)
end
return reply(all_start_over(path, cursor))
