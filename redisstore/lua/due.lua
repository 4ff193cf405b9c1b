-- Acts on deadlines that have passed.
-- ARGV[9] how many consumers at most
-- Returns { how many were due, outcome, how many of those removed were of a deleted subscription, of how many the worker was not heard }.
-- O(log n + consumers due).
local dropped, silent = 0, 0
local ids = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', now, 'LIMIT', 0, ARGV[A])
for _, id in ipairs(ids) do
  local c = load(id)
  if not c then
    redis.call('ZREM', P .. 'due', id)
  elseif is_dead(c.gen) then
    dropped = dropped + 1
    remove(c)
  elseif c.hidden > 0 then
    -- Only upstream's word ends it (hide.lua): nobody may have been able to ask.
    c.due = now + GRACE
    save(c)
    hidden[#hidden + 1] = c.primary
  elseif c.state == 'waking' and c.sent == 1 then
    if failed(c, 0, false, 'no answer in time') then save(c) end
  elseif c.state == 'waking' and expired(c) then
    remove(c)
  elseif c.state == 'waking' and c.retired == 1 then
    c.due = c.failing + GC
    save(c)
  elseif c.state == 'waking' then
    hand_out(c)
    save(c)
  elseif c.state == 'live' then
    over(c, 'silent')
    silent = silent + 1
    c.state = 'idle'
    came_idle(c)
    settle(c)
    save(c)
  else
    c.due = 0
    save(c)
  end
end
return { #ids, outcome(), dropped, silent }
