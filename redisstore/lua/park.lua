-- The attempt was handed out and not begun. It waits for a time, unless begin.lua hands it out before. If it is parked
-- already, the time begins anew.
-- ARGV[5] consumer  ARGV[6] epoch  ARGV[7] wake id  ARGV[8] handed  ARGV[9] attempt  ARGV[10] how long, ms
-- ARGV[11] why, or "" if it is handed back.
-- Returns the outcome. Nothing happens unless this attempt is out or parked. O(1).
local c = current(record, ARGV[A], ARGV[A + 1], ARGV[A + 2])
if c and c.state == 'waking' and c.handed == tonumber(ARGV[A + 3]) and c.hidden == 0 then
  local out = c.sent == 1
  if out or c.retired == 0 and c.attempt == tonumber(ARGV[A + 4]) - 1 then
    if out then
      c.attempt, c.sent = c.attempt - 1, 0
      if c.failing > 0 then c.parked = now end
    end
    redis.call('HSET', P .. 'f:' .. c.id, 'held', int(c.epoch) .. ' ' .. int(c.handed) .. ' ' .. ARGV[A + 6])
    c.due = now + tonumber(ARGV[A + 5])
    save(c)
  end
end
return reply(outcome())
