-- Has a consumer read a stream again, from an offset that lies before what is acked (spec.Rewind).
-- to: the offset.
-- Returns { what was done, what was acked before }. What was done is
--    1  the consumer is rewound
--    0  it has no such stream, or the offset does not lie before what is acked
--   -1  it is gone, or in quarantine
--   -2  nothing: this call, or this call before its reply was lost, has begun a wake of it, because a stream was made
--       anew. Another call can rewind it.
-- A repeated call does not know what was acked. O(links of the consumer).
local consumer, gen, path, to = unpack(ARGV, A)
local c = load(consumer)
if carried_out() then
  repeated(c)
  return reply(1, '')
end
if not c or c.gen ~= gen or is_dead(c.gen) or is_quarantined(c.id) then return reply(-1, '') end
if begun[c.id] or repeated(c) then return reply(-2, '') end
local l = links(c)[path]
if not l or not after(l.acked, to) then return reply(0, '') end
local was = l.acked
go_back(c, path, to)
c.stalled = 0
begin_again(c, 'rewound')
save(c)
note_call()
return reply(1, was)
