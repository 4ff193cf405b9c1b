-- Hides the consumers whose primary stream is gone, as upstream says, until the stream is observed again. Removes
-- consumers whose stream has been gone for the grace. Batches: call again with the returned cursor until it is "0".
-- absence: 0 missing once, 1 missing anew, 2 missing still (fsm.Absence).
-- Returns the next cursor. O(batch + links that one script may read).
local path, absence, cursor = unpack(ARGV, A)
local next_cursor = visit(P .. 'w:' .. path, cursor, function(id)
  local c = load(id)
  if not c or c.primary ~= path then return end
  -- If the caller asked only once, the stream's watcher has to ask again.
  if absence == '0' then tell('hidden', path) end
  if c.hidden == 0 or absence == '1' then
    if c.state == 'waking' then
      if c.hidden > 0 then uncount(c, c.hidden) else uncount_unattempted(c) end
    end
    c.hidden, c.due = now(), now() + GRACE
    save(c)
  elseif absence == '2' and now() >= c.hidden + GRACE then
    -- If the stream comes back, it is a new one. Discovery must not take it for linked.
    leave_letters(c, 'stream_gone', tail_of(path))
    drop_stream(path)
    remove(c, 'stream_gone')
  end
end)
return reply(next_cursor)
