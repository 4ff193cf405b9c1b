-- Reads a stream's record.
-- ARGV[5] path.
-- Returns the record (library/streams.lua). O(1).
return reply(stream_reply(ARGV[A]))
