-- The attempt was handed out and not begun. It waits for a time, unless begin.lua hands it out before. If it is parked
-- already, the time begins anew.
-- wait: how long, ms  why: "" if it is handed back.
-- Nothing happens unless this attempt is out or parked. O(1).
local consumer, epoch, wake, handed, attempt, wait, why = unpack(ARGV, A)
local c = current(record, consumer, epoch, wake)
if c and c.state == 'waking' and c.handed == tonumber(handed) and c.hidden == 0 then
  local out = c.sent == 1
  if out or c.retired == 0 and c.attempt == tonumber(attempt) - 1 then
    if out then
      c.attempt, c.sent = c.attempt - 1, 0
      if c.failing > 0 then c.parked = now() end
    end
    redis.call('HSET', P .. 'f:' .. c.id, 'held', int(c.epoch) .. ' ' .. int(c.handed) .. ' ' .. why)
    c.due = now() + tonumber(wait)
    save(c)
  end
end
return reply()
