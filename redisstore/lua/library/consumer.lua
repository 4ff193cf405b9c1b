-- A consumer: its record, its links, how it is made and removed (fsm.Consumer).

-- is_dead says whether the subscription of a consumer's generation was deleted. The consumer is then gone, even if it
-- is not removed yet.
local function is_dead(gen) return redis.call('HEXISTS', P .. 'dropping', gen) == 1 end

-- aside_of returns the id of an aside's consumer, or nil for any other consumer (fsm.AsideOf).
local function aside_of(c) return string.match(c.id, '^([^:]*:[^:]*):') end

-- place_of names the list that a consumer is on. An idle consumer is on none.
local function place_of(c)
  if c.state == 'waking' then return c.retired == 1 and 'retired' or aside_of(c) and 'aside' or 'waiting' end
  return (c.state == 'live' or c.state == 'given_up') and c.state or nil
end

-- RECORD are the fields of a consumer's record that scripts read. The function save writes the fields from the fifth
-- on. Each field costs, so a script that needs a rare field reads it by itself. The last four may be missing.
local RECORD = {
  'sub', 'gen', 'primary', 'profile', 'state', 'wake', 'by',
  'epoch', 'woke', 'attempt', 'handed', 'sent', 'failing', 'retired', 'stalled', 'moved', 'hidden', 'due',
  'since', 'born', 'replay', 'again',
}

-- wrong names the field of a record that is not as it should be. Numbers are exact up to MOST, and texts have at most
-- LONGEST bytes.
local MOST, LONGEST = 2 ^ 53, 8192
local function wrong(r, known_state)
  for i = 1, 7 do
    local optional = i == 4 or i == 7 -- profile and by
    if not r[i] and not optional or r[i] and #r[i] > LONGEST then return RECORD[i] end
  end
  if not known_state then return 'state' end
  for i = 8, 18 do
    if not r[i] or not (r[i] >= 0 and r[i] < MOST) then return RECORD[i] end
  end
  return 'since, born, replay or again'
end

-- record returns a consumer's record, or nil if there is none. It also returns nil if the record cannot be read, and
-- puts the consumer in quarantine. Field was has the record as it is stored, in the order of RECORD. The fields are
-- named twice, in RECORD and here, because a loop over RECORD takes 1 µs more.
local function record(id)
  local r = redis.call('HMGET', P .. 'c:' .. id, unpack(RECORD))
  if not r[1] and not r[2] and not r[5] and not r[8] then return nil end
  local since, born, replay, again = r[19], r[20], r[21], r[22]
  for i = 8, #RECORD do r[i] = NUMBERS[r[i]] or tonumber(r[i]) end
  local epoch, woke, attempt, handed, sent, failing = r[8], r[9], r[10], r[11], r[12], r[13]
  local retired, stalled, moved, concealed, due = r[14], r[15], r[16], r[17], r[18]
  local s = r[5]
  local known = s == 'idle' or s == 'waking' or s == 'live' or s == 'given_up'
  if not (r[1] and r[2] and r[3] and r[6] and known and epoch and woke and attempt and handed and sent and failing and retired and
    stalled and moved and concealed and due) or since and not r[19] or born and not r[20] or replay and not r[21] or
    again and not r[22] or #r[1] + #r[2] + #r[3] + #r[6] > LONGEST or
    not (epoch + woke + attempt + handed + sent + failing + retired + stalled + moved + concealed + due < MOST) or
    math.min(epoch, woke, attempt, handed, sent, failing, retired, stalled, moved, concealed, due) < 0 then
    return quarantine(id, 'its field ' .. wrong(r, known) .. ' is missing, too long, or not of its type')
  end
  local c = {
    id = id, was = r, sub = r[1], gen = r[2], primary = r[3], profile = r[4], state = r[5], wake = r[6], by = r[7], epoch = r[8],
    woke = r[9], attempt = r[10], handed = r[11], sent = r[12], failing = r[13], retired = r[14], stalled = r[15], moved = r[16],
    hidden = r[17], due = r[18], since = r[19], born = r[20], replay = r[21], again = r[22], uncounted = 0, parked = 0,
  }
  if c.failing > 0 then
    local kept = redis.call('HMGET', P .. 'c:' .. id, 'uncounted', 'parked')
    c.uncounted, c.parked = tonumber(kept[1] or '0'), tonumber(kept[2] or '0')
    if not c.uncounted or not c.parked then return quarantine(id, 'its field uncounted or parked is not a number') end
  end
  c.was_due, c.was_uncounted, c.was_parked, c.was_place = c.due, c.uncounted, c.parked, place_of(c)
  return c
end

-- links returns the consumer's links: path -> { acked, tail }. It reads them once. The tail of an aside is its end.
local function links(c)
  if not c.links then
    c.links = {}
    local ends = aside_of(c) and redis.call('HGET', P .. 'c:' .. c.id, 'ends')
    local raw = redis.call('HGETALL', P .. 'l:' .. c.id)
    links_read = links_read + #raw / 2 + 10 -- the consumer itself costs about as much as ten
    for i = 1, #raw, 2 do c.links[raw[i]] = { acked = raw[i + 1], tail = ends or tail_of(raw[i]) } end
  end
  return c.links
end

local function save(c)
  local was, changes = c.was, { 'HSET', P .. 'c:' .. c.id }
  for i = 5, #RECORD do
    local field = RECORD[i]
    local value = c[field]
    if value ~= was[i] then
      changes[#changes + 1] = field
      changes[#changes + 1] = i < 8 and value or int(value)
      if field == 'failing' or field == 'hidden' then
        if value > 0 then
          redis.call('ZADD', P .. field, int(value), c.id)
        elseif was[i] then
          redis.call('ZREM', P .. field, c.id)
        end
      end
      was[i] = value
    end
  end
  if c.uncounted ~= c.was_uncounted then
    changes[#changes + 1] = 'uncounted'
    changes[#changes + 1] = int(c.uncounted)
    c.was_uncounted = c.uncounted
  end
  if c.parked ~= c.was_parked then
    changes[#changes + 1] = 'parked'
    changes[#changes + 1] = int(c.parked)
    c.was_parked = c.parked
  end
  if #changes > 2 then redis.call(unpack(changes)) end
  local place = place_of(c)
  if c.was_place and c.was_place ~= place then redis.call('ZREM', P .. c.was_place, c.id) end
  if place and (place ~= c.was_place or c.begun) then redis.call('ZADD', P .. place, int(now), c.id) end
  if c.due == c.was_due then return end
  if c.due == 0 then
    redis.call('ZREM', P .. 'due', c.id)
  else
    redis.call('ZADD', P .. 'due', int(c.due), c.id)
  end
end

-- count_asides adds to the counts of a subscription's asides. Asides that replay something have a count of their own.
local function count_asides(gen, asides, replays)
  for field, n in pairs({ [gen] = asides, [gen .. ':replays'] = replays }) do
    if n ~= 0 and redis.call('HINCRBY', P .. 'asides', field, n) == 0 then redis.call('HDEL', P .. 'asides', field) end
  end
end

-- create makes a consumer. The epoch is the highest that an earlier consumer of the same id may have had. The profile
-- is as in a record. For an aside, the table aside has the id of its consumer (of), born and ends. If it replays
-- something, the table also has its number (replay).
local function create(sub, gen, id, primary, acked, epoch, profile, aside)
  touched = true
  local c = {
    id = id, sub = sub, gen = gen, primary = primary, state = 'idle', epoch = epoch, profile = profile, wake = '', woke = 0, attempt = 0,
    handed = 0, sent = 0, failing = 0, retired = 0, stalled = 0, moved = 0, hidden = 0, uncounted = 0, parked = 0, due = 0,
    was = {}, was_due = 0, was_uncounted = 0, was_parked = 0,
  }
  if profile or aside then c.born = aside and tonumber(aside.born) or epoch end
  if aside then c.replay = tonumber(aside.replay) end
  c.was[20], c.was[21] = c.born, c.replay
  redis.call('HSET', P .. 'c:' .. id, 'sub', sub, 'gen', gen, 'primary', primary)
  if profile then redis.call('HSET', P .. 'c:' .. id, 'profile', profile) end
  if c.born then redis.call('HSET', P .. 'c:' .. id, 'born', int(c.born)) end
  if c.replay then redis.call('HSET', P .. 'c:' .. id, 'replay', int(c.replay)) end
  if restarts() > 0 then redis.call('HSET', P .. 'c:' .. id, 'restarts', int(restarts())) end
  redis.call('HSET', P .. 'l:' .. id, primary, acked)
  redis.call('SADD', P .. 'b:' .. sub .. ':' .. gen, id)
  if aside then
    redis.call('HSET', P .. 'c:' .. id, 'ends', aside.ends)
    redis.call('SADD', P .. 'x:' .. aside.of, id)
    count_asides(gen, aside.replay and 0 or 1, aside.replay and 1 or 0)
  else
    watch({ primary }, id)
  end
  return c
end

-- over notes that the wake of a consumer is over (fsm.WakeEnd).
local function over(c, cause)
  if c.state == 'waking' or c.state == 'live' then
    ended[#ended + 1] = { c.id, c.sub, c.primary, c.epoch, c.wake, c.woke, cause }
  end
end

-- is_gone notes that a consumer is gone for a cause (fsm.RemovalCause), unless it was given up before. For an aside, it
-- only notes that its wake is over.
local function is_gone(c, cause)
  if c.state == 'given_up' then return end
  over(c, 'removed')
  if aside_of(c) then return end
  local l = links(c)[c.primary]
  gone[#gone + 1] = { c.sub, c.gen, c.id, c.primary, l and l.acked or '', cause }
end

-- floor is the highest epoch of all removed consumers.
local function floor() return tonumber(redis.call('HGET', P .. 'meta', 'floor') or '0') end

-- remove ends a consumer for a cause, and its asides with it. If a consumer with the same id comes again, its epochs
-- are higher. O(links + asides). An aside counts as a link: beside a consumer that has many, a script does little else.
local function remove(c, cause)
  touched = true
  is_gone(c, cause)
  local ids, epoch, of = { c.id }, c.epoch, aside_of(c)
  local replays = of and redis.call('HEXISTS', P .. 'c:' .. c.id, 'replay')
  if not of then -- the aside that replays for it may have gone first, with the stream
    local n = redis.call('HGET', P .. 'c:' .. c.id, 'replaying')
    replays = n and redis.call('SISMEMBER', P .. 'x:' .. c.id, c.id .. ':' .. n) or 0
  end
  if of then
    redis.call('SREM', P .. 'x:' .. of, c.id)
  else
    local paths = { c.primary }
    for path in pairs(links(c)) do paths[#paths + 1] = path end
    unwatch(paths, c.id)
    redis.call('UNLINK', P .. 'r:' .. c.id, P .. 'rs:' .. c.id)
    redis.call('ZREM', P .. 'replays', c.id)
    for _, id in ipairs(redis.call('SMEMBERS', P .. 'x:' .. c.id)) do
      local r = redis.call('HMGET', P .. 'c:' .. id, 'state', 'epoch', 'wake', 'woke')
      if tonumber(r[2] or '') and r[3] and tonumber(r[4] or '') then
        over({ id = id, sub = c.sub, primary = c.primary, state = r[1], epoch = r[2], wake = r[3], woke = r[4] }, 'removed')
      else -- it cannot be read, and is removed all the same
        r[2] = '0'
      end
      ids[#ids + 1], epoch = id, math.max(epoch, tonumber(r[2]))
    end
    links_read = links_read + #ids - 1
  end
  local keys = { P .. 'x:' .. c.id }
  for _, id in ipairs(ids) do
    keys[#keys + 1] = P .. 'c:' .. id
    keys[#keys + 1] = P .. 'l:' .. id
  end
  in_chunks(keys, function(...) redis.call('DEL', ...) end)
  in_chunks(ids, function(...)
    unlist(...)
    redis.call('HDEL', P .. 'quarantined', ...)
    redis.call('SREM', P .. 'b:' .. c.sub .. ':' .. c.gen, ...)
  end)
  count_asides(c.gen, replays - (of and 1 or #ids - 1), -replays)
  if epoch > floor() then redis.call('HSET', P .. 'meta', 'floor', epoch) end
end
