-- Notes that a stream's tail is at least this. Shows consumers that were hidden because it was gone. Wakes idle
-- consumers that have work on it now, and consumers that were given up if the work is new. Batches: call again with the
-- returned cursor until it is "0".
-- The function observed (library/transitions.lua) decides whether a consumer wakes.
-- ends: 1 if the stream is closed there.
-- Returns { watched 0|1, busy 0|1, tail noted, 1 if the stream was seen closed there, next cursor }.
-- O(batch + links that one script may read).
local path, tail, ends, cursor = unpack(ARGV, A)
local watchers = redis.call('SRANDMEMBER', P .. 'w:' .. path, 51) -- all of them, if they are at most 51
if #watchers == 0 then return reply(0, 1, '', 0, '0') end
if #watchers <= 50 then table.sort(watchers) end
note_tail(path, tail, ends == '1')
local busy = 1
local next_cursor = visit(P .. 'w:' .. path, cursor, function(id)
  local c = load(id)
  if not c or is_dead(c.gen) then return end
  if c.state == 'waking' then repeated(c) end
  if observed(c, path) then save(c) end
  if (c.state == 'idle' or c.state == 'given_up') and c.hidden == 0 and acked_of(c, path) then busy = 0 end
end, #watchers <= 50 and watchers)
return reply(1, busy, tail_of(path), is_closed(path) and 1 or 0, next_cursor)
