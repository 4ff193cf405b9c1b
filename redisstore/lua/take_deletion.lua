-- Takes in that the registry stream reports a deletion.
-- Returns 1 if the deletion was dealt with when it was made (deleted.lua), otherwise 0. O(1).
local path = ARGV[A]
if carried_out() then return reply(1) end
local key = P .. 'd:' .. path
local expected = tonumber(redis.call('GET', key) or '0')
if expected <= 0 then
  -- A client may have deleted the stream through the gateway, which has yet to take that in (deleted.lua). The registry
  -- does not report it again.
  redis.call('DECR', key)
  redis.call('PEXPIRE', key, 60000)
  return reply(0)
end
note_call()
if expected == 1 then redis.call('DEL', key) else redis.call('DECR', key) end
return reply(1)
