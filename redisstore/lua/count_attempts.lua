-- Adds numbers to an hour and to a minute, once for each batch of a process. It has no library.
-- KEYS[1] hash of the hour: field -> number, and process -> its last batch.
-- KEYS[2] hash of the minute: field -> number.
-- batch: its number  hours_kept, minutes_kept: for how long the hour and the minute are kept, ms.
-- Then follow field, number, …
-- Returns 1, or 0 if the batch was counted before. O(fields).
local process, batch, hours_kept, minutes_kept = unpack(ARGV, 1, 4)
local last = redis.call('HGET', KEYS[1], process)
if last and tonumber(last) >= tonumber(batch) then return 0 end
redis.call('HSET', KEYS[1], process, batch)
for i, key in ipairs(KEYS) do
  for at = 5, #ARGV, 2 do redis.call('HINCRBY', key, ARGV[at], ARGV[at + 1]) end
  redis.call('PEXPIRE', key, i == 1 and hours_kept or minutes_kept)
end
return 1
