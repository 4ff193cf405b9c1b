-- Goes through the consumers of a subscription. Batches: call again with the returned cursor until it is "0".
-- ARGV[5] subscription  ARGV[6] generation  ARGV[7] cursor  ARGV[8] about how many.
-- Returns { next cursor, { { consumer, record, field, value, … }, … } }. The fields are those that few consumers have.
-- A consumer in quarantine has one field only, quarantined: why it is there. O(batch).
local sub, gen = ARGV[A], ARGV[A + 1]
if is_dead(gen) then return reply({ '0', {} }) end
local scan = batch('SSCAN', P .. 'b:' .. sub .. ':' .. gen, ARGV[A + 2], ARGV[A + 3])
local found = {}
local any = redis.call('EXISTS', P .. 'quarantined') == 1
for _, id in ipairs(scan[2]) do
  local text, raw = redis.pcall('GET', P .. 'c:' .. id), redis.pcall('HGETALL', P .. 'f:' .. id)
  local why = type(text) == 'table' and text.err or raw.err or any and redis.call('HGET', P .. 'quarantined', id)
  if why then
    found[#found + 1] = { id, '', 'quarantined', why }
  elseif text then
    table.insert(raw, 1, id)
    table.insert(raw, 2, text)
    found[#found + 1] = raw
  end
end
return reply({ scan[1], found })
