-- Makes the next attempts of a subscription's consumers due at once (spec.Retry). Batches: call again with the
-- returned cursor until it is "0".
-- Returns { next cursor, how many attempts have waited }. O(batch).
local sub, gen, cursor = unpack(ARGV, A)
local retried = 0
local next_cursor = visit(P .. 'b:' .. sub .. ':' .. gen, cursor, function(id)
  local c = record(id)
  if not c or not waits(c) then return end
  retried = retried + 1
  c.due = now()
  set_nudged(c, 0)
  save(c)
end)
return reply(next_cursor, retried)
