-- Takes in that resumptions which a loss may have undone were made up for. ARGV[5] base of the epochs since that loss.
-- Returns 1, or 0 if there is another loss since. O(1).
if redis.call('HGET', P .. 'meta', 'unresumed') ~= ARGV[A] then return reply('0') end
redis.call('HDEL', P .. 'meta', 'unresumed')
return reply('1')
