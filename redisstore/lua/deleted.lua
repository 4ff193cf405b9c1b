-- A stream is no more: it goes off the record, its own consumers are removed, those that subscribed to it start over should it be
-- made anew. Batches: call again with the returned cursor until it is "0".
-- ARGV[9] path  ARGV[10] first of the record that is no more, in microseconds, or "" for whichever there is
-- ARGV[11] 1 if there may be another stream of that name by now, which is then awaited
-- ARGV[12] 1 if the registry stream will tell of it, too  ARGV[13] 1 if that is awaited for the grace (fsm.Deletion)  ARGV[14] cursor
-- Returns { next cursor, outcome }; nothing happens if the record is another one by now. O(batch + links that one script may read).
local path, of, cursor = ARGV[A], ARGV[A + 1], ARGV[A + 5]
-- EXPECTED is for how long the registry stream may tell of it, ms. It tells sooner, or not at all: no fact ties what it tells to a
-- request.
local EXPECTED = 60000
if cursor == '0' then
  -- Sent again because its reply was lost: there may be a new stream by now. Consumers that were not visited start over as they are
  -- loaded.
  if carried_out() then return reply({ '0', outcome() }) end
  if of ~= '' then
    local s = stream_of(path)
    if not s or s.first ~= tonumber(of) then return reply({ '0', outcome() }) end
  end
  note_call()
  drop_stream(path)
  if ARGV[A + 2] == '1' then
    -- Its first is the stamp, which no record had before: within one microsecond, micros could be that of the old record.
    local stamp, till = next_stamp(), ARGV[A + 4] == '1' and micros + GRACE * 1000 or micros
    put_stream(path, {
      awaited = true, first = stamp, till = till, noted = 0, linked = 0, stamp = stamp, lost = lost_version(), begin = '-1', tail = '',
    })
  end
  if ARGV[A + 3] == '1' then
    local key = P .. 'd:' .. path
    if redis.call('INCR', key) == 0 then redis.call('DEL', key) else redis.call('PEXPIRE', key, EXPECTED) end
  end
  if redis.call('EXISTS', P .. 'w:' .. path) == 0 then return reply({ '0', outcome() }) end
  note_old_tail(path)
  forget_tail(path)
end
return reply({ all_start_over(path, cursor), outcome() })
