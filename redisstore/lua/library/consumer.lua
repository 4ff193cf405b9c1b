-- A consumer: its record, its links, how it is made and removed (fsm.Consumer).

-- is_dead says whether the subscription of a consumer's generation was deleted. The consumer is then gone, even if it
-- is not removed yet.
local function is_dead(gen)
  return (meta()[5] or '0') ~= '0' and redis.call('HEXISTS', P .. 'dropping', gen) == 1
end

-- aside_id returns the id of an aside (fsm.AsideID). No script takes an id apart: the field owner tells an aside from
-- other consumers.
local function aside_id(owner, number) return owner .. ':' .. number end

-- place_of names the list that a consumer is on. It is "" for an idle consumer, which is on none.
local function place_of(c)
  if c.state == 'waking' then return c.retired == 1 and 'retired' or c.owner and 'aside' or 'waiting' end
  return (c.state == 'live' or c.state == 'given_up') and c.state or ''
end

-- A record is one text, because each field that Redis reads or writes costs (keys.lua). RECORD takes it apart. TROUBLE
-- takes its second line apart, which is empty for most consumers.
local RECORD = '^(%S+) (%d+) (%S+) (%d+) (%d+) (%d+) ([01]) ([01]) (%d+) (%S+)\n([^\n]*)\n' ..
  '((%S+) (%S+) (%d+) (%d+) (%S+)\n([^\n]+))\n(=?)([^\n]*)\n([^\n]*)$'
local TROUBLE = '^(%d+) (%-?%d+) (%d+) ([01]) (%d+) (%d+) (%d+) (%d+) (%d+)$'

-- peek returns a consumer's record, or nil if there is none. If it cannot be read, peek returns nil and why. Arithmetic
-- takes digits for numbers, which are exact up to 2^53.
local function peek(id)
  local text = redis.call('GET', P .. 'c:' .. id)
  if not text then return nil end
  if #text > 32768 then return nil, 'its record is too long' end
  local state, epoch, wake, woke, attempt, handed, sent, moved, due, by, trouble, who, sub, gen, born, replay, profile,
    primary, linked, acked, aside = string.match(text, RECORD)
  local is_state = state == 'idle' or state == 'waking' or state == 'live' or state == 'given_up'
  local owner, ends
  if is_state and aside ~= '' then owner, ends = string.match(aside, '^(%S+) (.+)$') end
  if not is_state or linked == '' and acked ~= '' or aside ~= '' and not owner then
    return nil, 'its record has another form'
  end
  local c = {
    id = id, was = text, state = state, epoch = epoch + 0, wake = wake ~= '-' and wake or '', woke = woke + 0,
    attempt = attempt + 0, handed = handed + 0, sent = sent + 0, moved = moved + 0, due = due + 0, by = by,
    failing = 0, uncounted = 0, parked = 0, retired = 0, stalled = 0, hidden = 0, more = 0,
    who = who, sub = sub, gen = gen, born = born + 0, replay = replay + 0, profile = profile ~= '-' and profile,
    primary = primary, acked = linked ~= '' and acked,
  }
  if owner then c.owner, c.ends = owner, ends end -- a table that comes to have over 32 fields is made anew
  local most = math.max(c.epoch, c.woke, c.attempt, c.handed, c.due, c.born, c.replay)
  if trouble ~= '' then
    local failing, uncounted, parked, retired, stalled, concealed, since, again, more = string.match(trouble, TROUBLE)
    if not failing then return nil, 'the second line of its record has another form' end
    c.failing, c.uncounted, c.parked, c.retired = failing + 0, uncounted + 0, parked + 0, retired + 0
    c.stalled, c.hidden, c.since, c.again, c.more = stalled + 0, concealed + 0, since + 0, again + 0, more + 0
    c.was_failing, c.was_hidden = c.failing, c.hidden
    most = math.max(most, c.failing, math.abs(c.uncounted), c.parked, c.stalled, c.hidden, c.since, c.again, c.more)
  end
  if most >= 2 ^ 53 then return nil, 'its record has a number that is too large' end
  c.was_due, c.was_place = c.due, place_of(c)
  return c
end

-- record returns a consumer's record, or nil if there is none. It also returns nil if the record cannot be read, and
-- puts the consumer in quarantine.
local function record(id)
  local c, why = peek(id)
  if why then return quarantine(id, why) end
  return c
end

-- links returns the consumer's links: path -> { acked, tail }. It reads them once. The tail of an aside is its end.
local function links(c)
  if not c.links then
    c.links = c.acked and { [c.primary] = { acked = c.acked, tail = c.ends or tail_of(c.primary) } } or {}
    local raw = c.more > 0 and redis.call('HGETALL', P .. 'l:' .. c.id) or {}
    links_read = links_read + #raw / 2 + 10 -- the consumer itself costs about as much as ten
    for i = 1, #raw, 2 do c.links[raw[i]] = { acked = raw[i + 1], tail = tail_of(raw[i]) } end
  end
  return c.links
end

-- acked_of returns the acked offset of one link, or nil. It does not read the others.
local function acked_of(c, path)
  if path == c.primary then return c.acked end
  return c.more > 0 and redis.call('HGET', P .. 'l:' .. c.id, path) or nil
end

-- set_acked sets the acked offset of a link. The function save writes that of the primary.
local function set_acked(c, path, acked)
  links(c)[path].acked = acked
  if path == c.primary then c.acked = acked else redis.call('HSET', P .. 'l:' .. c.id, path, acked) end
end

-- list notes since when a consumer is on a list, or that it is on it no more. c[name] is the time, and c[noted] is what
-- Redis has.
local function list(c, name, noted)
  local is = c[name]
  if is == (c[noted] or 0) then return end
  c[noted] = is
  if is > 0 then redis.call('ZADD', P .. name, int(is), c.id) else redis.call('ZREM', P .. name, c.id) end
end

local function save(c)
  local trouble, since, again = '', c.since or 0, c.again or 0
  if c.failing + c.parked + c.retired + c.stalled + c.hidden + since + again + c.more > 0 or c.uncounted ~= 0 then
    trouble = string.format('%d %d %d %d %d %d %d %d %d', c.failing, c.uncounted, c.parked, c.retired, c.stalled,
      c.hidden, since, again, c.more)
  end
  local of_wake = string.format('%s %d %s %d %d %d %d %d %d %s\n', c.state, c.epoch,
    c.wake ~= '' and c.wake or '-', c.woke, c.attempt, c.handed, c.sent, c.moved, c.due, c.by)
  local acked, aside = c.acked and '=' .. c.acked or '', c.owner and c.owner .. ' ' .. c.ends or ''
  local text = of_wake .. trouble .. '\n' .. c.who .. '\n' .. acked .. '\n' .. aside
  if text ~= c.was then redis.call('SET', P .. 'c:' .. c.id, text) end
  list(c, 'failing', 'was_failing')
  list(c, 'hidden', 'was_hidden')
  list(c, 'due', 'was_due')
  local was, place = c.was_place, place_of(c)
  if was ~= '' and was ~= place then redis.call('ZREM', P .. was, c.id) end
  if place ~= '' and (place ~= was or c.begun) then redis.call('ZADD', P .. place, int(now()), c.id) end
  c.was, c.was_place = text, place
end

-- count_asides adds to the counts of a subscription's asides. Asides that replay something have a count of their own.
local function count_asides(gen, asides, replays)
  for field, n in pairs({ [gen] = asides, [gen .. ':replays'] = replays }) do
    if n ~= 0 and redis.call('HINCRBY', P .. 'asides', field, n) == 0 then redis.call('HDEL', P .. 'asides', field) end
  end
end

-- set_who writes the lines of a record that hardly change.
local function set_who(c)
  c.who = string.format('%s %s %d %d %s\n', c.sub, c.gen, c.born, c.replay, c.profile or '-') .. c.primary
end

-- create makes a consumer, which save then writes. The epoch is the highest that an earlier consumer of the same id may
-- have had. The profile is as in a record. For an aside, the table aside has its owner, the owner's born, and ends. If
-- it replays something, the table also has its number (replay).
local function create(sub, gen, id, primary, acked, epoch, profile, aside)
  touched = true
  local c = {
    id = id, sub = sub, gen = gen, primary = primary, state = 'idle', epoch = epoch, profile = profile,
    wake = '', woke = 0, attempt = 0, handed = 0, sent = 0, moved = 0, due = 0, by = '-',
    failing = 0, uncounted = 0, parked = 0, retired = 0, stalled = 0, hidden = 0, more = 0,
    born = aside and aside.born or profile and epoch or 0, replay = aside and aside.replay or 0,
    acked = acked, owner = aside and aside.owner, ends = aside and aside.ends, was_place = '',
  }
  set_who(c)
  if restarts() > 0 then redis.call('HSET', P .. 'f:' .. id, 'restarts', int(restarts())) end
  redis.call('SADD', P .. 'b:' .. sub .. ':' .. gen, id)
  if aside then
    redis.call('SADD', P .. 'x:' .. c.owner, id)
    count_asides(gen, c.replay > 0 and 0 or 1, c.replay > 0 and 1 or 0)
  else
    watch({ primary }, id)
  end
  return c
end

-- over notes that the wake of a consumer is over (fsm.WakeEnd).
local function over(c, cause)
  if c.state == 'waking' or c.state == 'live' then
    tell('ended', c.id, c.sub, c.primary, c.epoch, c.wake, c.woke, cause)
  end
end

-- is_gone notes that a consumer is gone for a cause (fsm.RemovalCause), unless it was given up before. For an aside, it
-- only notes that its wake is over.
local function is_gone(c, cause)
  if c.state == 'given_up' then return end
  over(c, 'removed')
  if c.owner then return end
  local l = links(c)[c.primary]
  tell('removed', c.sub, c.gen, c.id, c.primary, l and l.acked or '', cause)
end

-- floor is the highest epoch of all removed consumers.
local function floor() return tonumber(redis.call('HGET', P .. 'meta', 'floor') or '0') end

-- remove ends a consumer for a cause, and its asides with it. If a consumer with the same id comes again, its epochs
-- are higher. O(links + asides). An aside counts as a link: beside a consumer that has many, a script does little else.
local function remove(c, cause)
  touched = true
  is_gone(c, cause)
  local ids, epoch, owner = { c.id }, c.epoch, c.owner
  local replays = c.replay > 0 and 1 or 0
  if not owner then -- the aside that replays for it may have gone first, with the stream
    local n = redis.call('HGET', P .. 'f:' .. c.id, 'replaying')
    replays = n and redis.call('SISMEMBER', P .. 'x:' .. c.id, aside_id(c.id, n)) or 0
  end
  if owner then
    redis.call('SREM', P .. 'x:' .. owner, c.id)
  else
    local paths = { c.primary }
    for path in pairs(links(c)) do paths[#paths + 1] = path end
    unwatch(paths, c.id)
    redis.call('UNLINK', P .. 'r:' .. c.id, P .. 'rs:' .. c.id)
    redis.call('ZREM', P .. 'replays', c.id)
    for _, id in ipairs(redis.call('SMEMBERS', P .. 'x:' .. c.id)) do
      local aside = peek(id)
      if aside then over(aside, 'removed') end -- one that cannot be read is removed all the same
      ids[#ids + 1], epoch = id, math.max(epoch, aside and aside.epoch or 0)
    end
    links_read = links_read + #ids - 1
  end
  local keys = { P .. 'x:' .. c.id }
  for _, id in ipairs(ids) do
    keys[#keys + 1] = P .. 'c:' .. id
    keys[#keys + 1] = P .. 'f:' .. id
    keys[#keys + 1] = P .. 'l:' .. id
  end
  in_chunks(keys, function(...) redis.call('DEL', ...) end)
  in_chunks(ids, function(...)
    unlist(...)
    redis.call('HDEL', P .. 'quarantined', ...)
    redis.call('SREM', P .. 'b:' .. c.sub .. ':' .. c.gen, ...)
  end)
  count_asides(c.gen, replays - (owner and 1 or #ids - 1), -replays)
  if epoch > floor() then redis.call('HSET', P .. 'meta', 'floor', epoch) end
end
