-- Takes in that resumptions which a loss may have undone were made up for. base: that of the epochs since that loss.
-- Returns 1, or 0 if there is another loss since. O(1).
local base = ARGV[A]
if redis.call('HGET', P .. 'meta', 'unresumed') ~= base then return reply('0') end
redis.call('HDEL', P .. 'meta', 'unresumed')
return reply('1')
