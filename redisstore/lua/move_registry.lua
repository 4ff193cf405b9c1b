-- Moves on how far the registry stream was read, with the mark of what was read. It does nothing if another replica has
-- moved it meanwhile. Global.
-- offset_key, mark_key: strings.
-- since_key: string: since when another incarnation is read than before, in microseconds.
-- from: the offset that was read from  from_mark: its mark, "" if there is none.
-- to: the offset read to  to_mark: its mark  anew: 1 if another incarnation is read from now on.
-- Returns 1 if it was moved, otherwise 0. O(1).
local offset_key, mark_key, since_key = unpack(KEYS)
local from, from_mark, to, to_mark, anew = unpack(ARGV)
local at, mark = redis.call('GET', offset_key) or '-1', redis.call('GET', mark_key) or ''
if at ~= from or mark ~= from_mark then return 0 end
redis.call('SET', offset_key, to)
redis.call('SET', mark_key, to_mark)
if anew == '1' then
  local t = redis.call('TIME')
  redis.call('SET', since_key, string.format('%.0f', tonumber(t[1]) * 1000000 + tonumber(t[2])))
end
return 1
