-- Adds numbers to an hour and to a minute, once for each batch of a process. It has no library.
-- KEYS[1] hash of the hour: field -> number, and process -> its last batch.
-- KEYS[2] hash of the minute: field -> number.
-- ARGV[1] process  ARGV[2] number of the batch  ARGV[3] for how long the hour is kept, ms  ARGV[4] the minute, ms.
-- ARGV[5…] field, number, …
-- Returns 1, or 0 if the batch was counted before. O(fields).
local last = redis.call('HGET', KEYS[1], ARGV[1])
if last and tonumber(last) >= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
for i, key in ipairs(KEYS) do
  for at = 5, #ARGV, 2 do redis.call('HINCRBY', key, ARGV[at], ARGV[at + 1]) end
  redis.call('PEXPIRE', key, ARGV[2 + i])
end
return 1
