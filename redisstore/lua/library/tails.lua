-- The tails of streams (fsm/spec/stream.go), and which consumers they concern.

local function tail_of(path)
  if not tails[path] then
    local noted = redis.call('HMGET', P .. 's:' .. path, 't', 'closed')
    tails[path], closed[path] = noted[1] or '', noted[2]
  end
  return tails[path]
end

-- is_closed says whether a stream was seen closed at its noted tail.
local function is_closed(path)
  local tail = tail_of(path)
  return tail ~= '' and closed[path] == tail
end

-- set_noted notes the end of a stream, and whether it was seen closed there.
local function set_noted(path, tail, ends)
  touched = true
  redis.call('HSET', P .. 's:' .. path, 't', tail)
  if ends then
    redis.call('HSET', P .. 's:' .. path, 'closed', tail)
  elseif closed[path] then
    redis.call('HDEL', P .. 's:' .. path, 'closed')
  end
  tails[path], closed[path] = tail, ends and tail
end

local function note_old_tail(path) old_tails = { [path] = tail_of(path) } end

local function forget_tail(path)
  touched = true
  tails[path], closed[path] = nil, nil
  redis.call('HDEL', P .. 's:' .. path, 't', 'closed')
end

-- ends_before says whether an offset lies beyond the end of a closed stream (fsm.Noted.EndsBefore).
local function ends_before(path, offset) return is_closed(path) and after(offset, tail_of(path)) end

-- begin_at returns where a consumer begins that asked for an offset (spec.Beginning).
local function begin_at(path, offset) return ends_before(path, offset) and tail_of(path) or offset end

-- note_tail notes a tail that a caller has shown, and whether the stream is closed there (spec.Raised).
local function note_tail(path, tail, ends)
  local noted = tail_of(path)
  local raises = after(tail, noted) and not ends_before(path, tail)
  local closes = ends and tail ~= '' and tail == noted and not is_closed(path)
  if raises or closes then
    set_noted(path, tail, ends)
  end
end

-- watch notes that streams concern a consumer. Streams that were watched before keep their numbers; the new numbers are
-- skipped.
local function watch(paths, id)
  local seq = redis.call('HINCRBY', P .. 'meta', 'seq', #paths) - #paths
  local numbered = {}
  for i, path in ipairs(paths) do
    redis.call('SADD', P .. 'w:' .. path, id)
    numbered[2 * i - 1], numbered[2 * i] = seq + i, path
  end
  in_chunks(numbered, function(...) redis.call('ZADD', P .. 'watched', 'NX', ...) end)
end

-- unwatch is the reverse of watch. It forgets streams that no longer concern any consumer.
local function unwatch(paths, id)
  local unwatched, keys = {}, {}
  for _, path in ipairs(paths) do
    redis.call('SREM', P .. 'w:' .. path, id)
    if redis.call('EXISTS', P .. 'w:' .. path) == 0 then
      tails[path], closed[path] = nil, nil
      unwatched[#unwatched + 1], keys[#keys + 1] = path, P .. 's:' .. path
    end
  end
  in_chunks(unwatched, function(...) redis.call('ZREM', P .. 'watched', ...) end)
  in_chunks(keys, function(...) redis.call('DEL', ...) end)
end
