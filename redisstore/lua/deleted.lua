-- Takes in that a stream is gone. It goes off the record and its own consumers are removed. Consumers that subscribed
-- to it start over if it is made anew. Batches: call again with the returned cursor until it is "0".
-- of: first of the record that is gone, in microseconds, or "" for any record.
-- anew: 1 if there may be another stream of that name now; the script then awaits it.
-- expect: 1 if the registry stream will report the deletion, too.
-- doubt: 1 to await the other stream for the grace (fsm.Deletion).
-- Returns the next cursor. Nothing happens if there is another record now.
-- O(batch + links that one script may read).
local path, of, anew, expect, doubt, cursor = unpack(ARGV, A)
-- EXPECTED is how long the script waits for the registry stream's report, ms. The report comes sooner, or never: no
-- fact ties it to a request.
local EXPECTED = 60000
if cursor == '0' then
  -- The call is repeated because its reply was lost. There may be a new stream now. Consumers that were not visited
  -- start over when they are loaded.
  if carried_out() then return reply('0') end
  if of ~= '' then
    local s = stream_of(path)
    if not s or s.first ~= tonumber(of) then return reply('0') end
  end
  note_call()
  drop_stream(path)
  if anew == '1' then
    -- The field first gets the stamp, which no record had before. The time could equal first of the old record, within
    -- one microsecond.
    local stamp, till = next_stamp(), doubt == '1' and micros() + GRACE * 1000 or micros()
    put_stream(path, {
      awaited = true, first = stamp, till = till, noted = 0, linked = 0, stamp = stamp, lost = lost_version(),
      begin = '-1', tail = '',
    })
  end
  if expect == '1' then
    local key = P .. 'd:' .. path
    if redis.call('INCR', key) == 0 then redis.call('DEL', key) else redis.call('PEXPIRE', key, EXPECTED) end
  end
  if redis.call('EXISTS', P .. 'w:' .. path) == 0 then return reply('0') end
  note_old_tail(path)
  forget_tail(path)
end
return reply(all_start_over(path, cursor))
