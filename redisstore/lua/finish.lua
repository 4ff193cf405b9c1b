-- An attempt was answered 2xx with "done". Acks up to the tails that the attempt was sent with, and no more. A tail
-- beyond the noted one is of a stream that was deleted since.
-- Behind n follow n times path, seen.
-- O(links of the consumer).
local consumer, epoch, wake, n = unpack(ARGV, A, A + 3)
local c = current(load, consumer, epoch, wake)
if not c then
  repeated(load(consumer))
else
  delivered(c)
  for at = A + 4, A + 2 + 2 * n, 2 do
    local path, seen = ARGV[at], ARGV[at + 1]
    local l = links(c)[path]
    if l and not after(seen, l.tail) then ack(c, path, seen) end
  end
  finished(c)
end
return reply()
