-- Reads a stream's record.
-- ARGV[9] path.
-- Returns the record (lib.lua, stream_of). O(1).
return reply(stream_reply(ARGV[A]))
