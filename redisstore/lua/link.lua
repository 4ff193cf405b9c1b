-- Creates the consumer that a subscription has for a stream, or finds it there, and notes the stream's tail.
-- ARGV[9] subscription  ARGV[10] generation  ARGV[11] consumer  ARGV[12] path  ARGV[13] acked  ARGV[14] tail
-- Returns the outcome, and after it 1 if the consumer was created; nothing happens if the subscription was deleted.
-- O(links of the consumer).
local sub, gen, id, path, acked, tail = ARGV[A], ARGV[A + 1], ARGV[A + 2], ARGV[A + 3], ARGV[A + 4], ARGV[A + 5]
if is_dead(gen) then return { outcome(), 0 } end
local c = load(id)
if c and c.gen ~= gen then
  remove(c) -- left over from an earlier subscription of the same id
  c = nil
end
local made = c and 0 or 1
if not c then c = create(sub, gen, id, path, acked) end
note_tail(path, tail)
if not repeated(c) then
  if c.hidden > 0 then show(c) end
  settle(c)
  save(c)
end
return { outcome(), made }
