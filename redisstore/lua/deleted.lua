-- A stream was deleted: it goes off the record, its own consumers are removed, those that subscribed to it start over should it be
-- made anew. Batches: call again with the returned cursor until it is "0".
-- ARGV[9] path  ARGV[10] 1 if the registry stream will tell of it, too  ARGV[11] cursor
-- Returns { next cursor, outcome }. O(batch + links that one script may read).
local path, cursor = ARGV[A], ARGV[A + 2]
-- EXPECTED is for how long the registry stream may tell of it, ms. It tells sooner, or not at all: no fact ties what it tells to a
-- request.
local EXPECTED = 60000
if cursor == '0' then
  -- Sent again because its reply was lost: there may be a new stream by now. Consumers that were not visited start over as they are
  -- loaded.
  if carried_out() then return reply({ '0', outcome() }) end
  note_call()
  drop_stream(path)
  if ARGV[A + 1] == '1' then
    local key = P .. 'd:' .. path
    if redis.call('INCR', key) == 0 then redis.call('DEL', key) else redis.call('PEXPIRE', key, EXPECTED) end
  end
  if redis.call('EXISTS', P .. 'w:' .. path) == 0 then return reply({ '0', outcome() }) end
  forget_tail(path)
end
return reply({ all_start_over(path, cursor), outcome() })
