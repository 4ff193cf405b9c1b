-- Consumers whose stored data is not as it should be.

-- unlist takes consumers off the lists that depend on what a consumer waits for.
local function unlist(...)
  for _, list in ipairs({ 'due', 'waiting', 'aside', 'retired', 'live', 'given_up', 'failing', 'hidden' }) do
    redis.call('ZREM', P .. list, ...)
  end
end

-- quarantine takes a consumer off all lists, because its record cannot be read or leads to an error. So the consumer
-- stops no other. Its record stays, with the reason in up to 200 bytes: resume.lua looks at it again.
local function quarantine(id, why)
  why = string.sub(why, 1, 200)
  unlist(id)
  if redis.call('HSET', P .. 'quarantined', id, why) == 1 then tell('quarantined', id, why) end
end

local function is_quarantined(id) return redis.call('HEXISTS', P .. 'quarantined', id) == 1 end

-- is_of_record says whether an error comes from stored data. Any other error comes from the server, such as a lack of
-- memory.
local function is_of_record(why)
  local parts = {
    'attempt to ', 'bad argument', 'WRONGTYPE', 'cannot perform ', 'not an integer', 'not a valid float',
    'no number in',
  }
  for _, part in ipairs(parts) do
    if string.find(why, part, 1, true) then return true end
  end
  return false
end

-- look calls f for one of several consumers, so that an error with this one harms no other. It returns whether that
-- went well, and what f returned, or why it failed. A script that only reads leaves it at that.
local function look(f, id, ...)
  local ok, result = pcall(f, id, ...)
  if ok then return true, result end
  local why = type(result) == 'table' and result.err or tostring(result)
  if not is_of_record(why) then error(result, 0) end
  return false, why
end

-- apart is look, but puts the consumer in quarantine if f fails. The wakes that f has asked for are dropped then,
-- because they are not stored.
local function apart(f, id, ...)
  local before = #outcome
  local ok, result = look(f, id, ...)
  if ok then return result end
  for i = #outcome, before + 1, -1 do
    if outcome[i][1] == 'delivery' then table.remove(outcome, i) end
  end
  quarantine(id, result)
end

-- named returns the subscription, the generation and the primary in a record that cannot be read, if they can be found.
local function named(id)
  local text = redis.pcall('GET', P .. 'c:' .. id)
  if type(text) ~= 'string' then return nil end
  return string.match(text, '^[^\n]*\n[^\n]*\n(%S+) (%S+) [^\n]*\n([^\n]+)\n')
end

-- erase removes an unreadable consumer from the store.
local function erase(id)
  local paths, sub, gen, primary = redis.pcall('HKEYS', P .. 'l:' .. id), named(id)
  if paths.err then paths = {} end
  paths[#paths + 1] = primary
  touched = true
  unwatch(paths, id)
  redis.call('UNLINK', P .. 'c:' .. id, P .. 'f:' .. id, P .. 'l:' .. id,
    P .. 'x:' .. id, P .. 'r:' .. id, P .. 'rs:' .. id)
  redis.call('ZREM', P .. 'replays', id)
  if gen then redis.call('SREM', P .. 'b:' .. sub .. ':' .. gen, id) end
  redis.call('HDEL', P .. 'quarantined', id)
end
