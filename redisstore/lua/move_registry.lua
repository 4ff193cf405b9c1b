-- Moves on how far the registry stream was read, with the mark of what was read. It does nothing if another replica has
-- moved it meanwhile. Global.
-- KEYS[1] string offset  KEYS[2] string mark.
-- KEYS[3] string: since when another incarnation is read than before, in microseconds.
-- ARGV[1] the offset that was read from  ARGV[2] its mark, "" if there is none.
-- ARGV[3] the offset read to  ARGV[4] its mark  ARGV[5] 1 if another incarnation is read from now on.
-- Returns 1 if it was moved, otherwise 0. O(1).
local at, mark = redis.call('GET', KEYS[1]) or '-1', redis.call('GET', KEYS[2]) or ''
if at ~= ARGV[1] or mark ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[3])
redis.call('SET', KEYS[2], ARGV[4])
if ARGV[5] == '1' then
  local t = redis.call('TIME')
  redis.call('SET', KEYS[3], string.format('%.0f', tonumber(t[1]) * 1000000 + tonumber(t[2])))
end
return 1
