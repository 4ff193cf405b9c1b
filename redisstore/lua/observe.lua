-- Notes that a stream's tail is at least this, shows consumers that were hidden because it was gone, and wakes the idle
-- ones that have work now. Consumers are taken in batches: call again with the returned cursor until it is "0".
-- ARGV[9] path  ARGV[10] tail  ARGV[11] cursor
-- Returns { watched 0|1, busy 0|1, tail noted, next cursor, outcome }. O(batch).
local path, tail, cursor = ARGV[A], ARGV[A + 1], ARGV[A + 2]
if redis.call('EXISTS', P .. 'w:' .. path) == 0 then return { 0, 1, '', '0', outcome() } end
note_tail(path, tail)
local scan = batch('SSCAN', P .. 'w:' .. path, cursor, 50)
local busy = 1
for _, id in ipairs(scan[2]) do
  local c = load(id)
  if c and not is_dead(c.gen) then
    if c.primary == path and c.hidden > 0 then
      show(c)
      settle(c)
      save(c)
    elseif c.state == 'idle' and c.hidden == 0 then
      settle(c)
      if c.state ~= 'idle' then save(c) end
    elseif c.state == 'waking' then
      repeated(c)
    end
    if c.state == 'idle' and c.hidden == 0 and links(c)[path] then busy = 0 end
  end
end
return { 1, busy, tail_of(path), scan[1], outcome() }
