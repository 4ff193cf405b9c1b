-- Hides the consumers whose primary stream upstream says is gone, until it is observed again, and removes those whose stream has
-- been gone for the grace. Batches: call again with the returned cursor until it is "0".
-- ARGV[9] path  ARGV[10] what is known: 0 once missing, 1 missing anew, 2 missing still (fsm.Absence)  ARGV[11] cursor
-- Returns { next cursor, outcome }. O(batch + links that one script may read).
local path, absence = ARGV[A], ARGV[A + 1]
local next_cursor = visit(P .. 'w:' .. path, ARGV[A + 2], function(id)
  local c = load(id)
  if not c or c.primary ~= path then return end
  -- A caller that asked once leaves it to the stream's watcher to ask again.
  if absence == '0' then hidden[#hidden + 1] = path end
  if c.hidden == 0 or absence == '1' then
    if c.state == 'waking' then
      if c.hidden > 0 then uncount(c, c.hidden) else uncount_unattempted(c) end
    end
    c.hidden, c.due = now, now + GRACE
    save(c)
  elseif absence == '2' and now >= c.hidden + GRACE then
    -- Should the stream come back, it is a new one: discovery must not take it for linked.
    leave_letters(c, 'stream_gone', tail_of(path))
    drop_stream(path)
    remove(c, 'stream_gone')
  end
end)
return reply({ next_cursor, outcome() })
