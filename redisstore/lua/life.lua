-- The life of the server as lib.lua asks for it (fsm.Fence). Global.
-- Returns the server's run_id, "" if it does not tell. O(1).
return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
