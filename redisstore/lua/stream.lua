-- Reads a stream's record.
-- ARGV[9] path.
-- Returns the record (library/streams.lua). O(1).
return reply(stream_reply(ARGV[A]))
