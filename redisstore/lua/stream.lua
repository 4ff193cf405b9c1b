-- Reads a stream's record.
-- Returns the record (library/streams.lua). O(1).
local path = ARGV[A]
return reply(stream_reply(path))
