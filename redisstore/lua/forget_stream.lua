-- Takes a stream that upstream does not have off the record.
-- stamp: as it was read before upstream was asked.
-- read_by_others: 1 to do it although consumers with other primary streams read the stream.
-- Returns 1 if it was taken off. Returns 0 if the record has changed since, is awaited for longer, or the partition has
-- consumers of the stream. O(1).
local path, stamp, read_by_others = unpack(ARGV, A)
local s = stream_of(path)
if not s or s.stamp ~= tonumber(stamp) or s.awaited and micros() < s.till then return reply(0) end
if read_by_others ~= '1' and redis.call('EXISTS', P .. 'w:' .. path) == 1 then return reply(0) end
drop_stream(path)
return reply(1)
