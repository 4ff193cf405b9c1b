-- Consumers in batches, so that no call takes long.

-- LINKS_READ is how many links a script reads before it leaves its other consumers to the next call. A consumer has at
-- most REVEILLE_MAX_STREAMS_PER_CONSUMER links. To read and change that many takes some 3 ms.
local LINKS_READ = 1000

-- size_of returns how many items a set or a hash has, 0 if it has another type.
local function size_of(command, key)
  local n = redis.pcall(command, key)
  return type(n) == 'number' and n or 0
end

-- can_read says whether this call may still read a consumer.
local function can_read(id) return links_read == 0 or links_read + size_of('HLEN', P .. 'l:' .. id) <= LINKS_READ end

-- members returns the members of a set, sorted: dead letters are numbered in this order.
local function members(set)
  local ids = redis.call('SMEMBERS', set)
  table.sort(ids)
  return ids
end

-- batch takes some more items of a set or a hash, with SSCAN or HSCAN. A cursor is valid only on the server that made
-- it, so it carries the server's incarnation. On another server the walk begins again.
local function batch(scan, key, cursor, count)
  local at, from = string.match(cursor, '^(%d+)@(.+)$')
  if not from or from ~= incarnation() then at = '0' end
  local found = redis.call(scan, key, at, 'COUNT', count)
  if found[1] ~= '0' then found[1] = found[1] .. '@' .. incarnation() end
  return found
end

-- visit calls f with a batch of the consumers in a set. It returns the cursor for the next call, "0" if there is none.
-- If a call stops because of the links it has read, the next one begins with the same batch. So f must find little left
-- to do for consumers that it has seen. The argument all has all members of the set, sorted, if they are known.
-- It is false if they are too many for one batch.
local function visit(set, cursor, f, all)
  local scan
  if string.sub(cursor, 1, 1) == '0' and (all or all == nil and redis.call('SCARD', set) <= 50) then
    scan = { '0', all or members(set) } -- at less than half the cost
  else
    scan = batch('SSCAN', set, cursor, '50')
  end
  for _, id in ipairs(scan[2]) do
    if not can_read(id) then return (string.match(cursor, '^%d+') or '0') .. '@' .. incarnation() end
    apart(f, id)
  end
  return scan[1]
end
