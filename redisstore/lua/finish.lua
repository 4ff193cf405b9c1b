-- An attempt was answered 2xx with "done". Acks up to the tails that the attempt was sent with, and no more. A tail
-- beyond the noted one is of a stream that was deleted since.
-- ARGV[5] consumer  ARGV[6] epoch  ARGV[7] wake id  ARGV[8] n  then n times path, tail.
-- Returns the outcome. O(links of the consumer).
local c = current(load, ARGV[A], ARGV[A + 1], ARGV[A + 2])
if not c then
  repeated(load(ARGV[A]))
else
  delivered(c)
  local n = tonumber(ARGV[A + 3])
  for i = 0, n - 1 do
    local l, seen = links(c)[ARGV[A + 4 + 2 * i]], ARGV[A + 5 + 2 * i]
    if l and not after(seen, l.tail) then ack(c, ARGV[A + 4 + 2 * i], seen) end
  end
  finished(c)
end
return reply(outcome())
