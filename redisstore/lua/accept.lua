-- An attempt was answered 2xx without "done".
-- O(1).
local consumer, epoch, wake = unpack(ARGV, A)
local c = current(record, consumer, epoch, wake)
if c then
  delivered(c)
  if c.state == 'waking' then go_live(c) end
  save(c)
end
return reply()
