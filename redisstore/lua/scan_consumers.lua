-- Goes through the consumers of a subscription. Batches: call again with the returned cursor until it is "0".
-- count: about how many.
-- Returns { next cursor, { { consumer, record, field, value, … }, … } }. The fields are those that few consumers have.
-- A consumer in quarantine has one field only, quarantined: why it is there. O(batch).
local sub, gen, cursor, count = unpack(ARGV, A)
if is_dead(gen) then return reply('0', {}) end
local scan = batch('SSCAN', P .. 'b:' .. sub .. ':' .. gen, cursor, count)
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
return reply(scan[1], found)
