-- What every script of a partition begins with (library.go): its arguments, the comparison of offsets, and a consumer's record with
-- the steps that transitions are made of. The functions mirror fsm/transitions.go line by line where they share a name.
--
-- KEYS[1]  the partition's prefix, e.g. "rv:{17}:". All keys of the partition begin with it, so all share its hash slot.
-- KEYS[2]  never stored either; with it a cluster keeps scripts from a partition that is being moved (keys.go)
-- ARGV[1]  now in ms, or -1 for Redis's own clock
-- ARGV[2]  waking timeout, ms      ARGV[3]  liveness timeout, ms    ARGV[4]  grace of a gone stream, ms
-- ARGV[5]  removal after failures, ms
-- ARGV[6]  the server's life, or "" to ask the server itself; or "?" to ask it in a database that is not new, in which a partition
--          without a life on record has lost it
-- ARGV[7]  nonce that wake ids are made from                        ARGV[8]  jitter, millionths
-- ARGV[9…] the script's own
-- and last, which is taken off: 1 if the caller wants to know which wakes are over
--
-- Keys below the prefix:
--   c:<consumer>    hash    sub gen primary state epoch wake woke listed attempt sent failing retired stalled moved hidden due;
--                           by: the nonce of the last callback that succeeded; error: why the last attempt failed, while
--                           failing is not 0; listed: the epoch that woke and the lists below are of
--   l:<consumer>    hash    stream path -> acked offset
--   s:<path>        hash    t: the highest tail noted
--   w:<path>        set     consumers that a stream concerns: linked to it, or it is their primary
--   b:<sub>:<gen>   set     consumers of a subscription
--   watched         zset    stream path -> when it came to be watched (a counter)
--   due             zset    consumer -> deadline, ms
--   waiting         zset    consumer that is waking and not retired -> since when, ms
--   retired, live   zset    consumer that is waking and retired, or live -> since when, ms
--   dead            zset    generation of a deleted subscription -> when, ms
--   known           hash    stream path -> when it was first heard of, microseconds, after a "?" while it is awaited
--   meta            hash    seq: the counter of watched; floor: the highest epoch of any consumer removed;
--                           life, base: see fence
--   lease           string  the replica that owns the partition
--   n:<nonce>       string  the nonce of a callback that ended a wake, for as long as it may be sent again because its reply was lost
local P = KEYS[1]
local now = tonumber(ARGV[1])
local micros = now * 1000
if now < 0 then
  local t = redis.call('TIME')
  micros = tonumber(t[1]) * 1000000 + tonumber(t[2])
  now = math.floor(micros / 1000)
end
-- Arithmetic takes text for numbers; only few scripts need these.
local WAKING, LIVENESS, GRACE = ARGV[2], ARGV[3], ARGV[4]
local GC, LIFE, NONCE, JITTER = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local LASTING = LIFE == '?'
local A = 9
local TRACED = table.remove(ARGV) == '1'

-- What the script's caller is to do, see fsm.Outcome.
local wakes, idle, hidden, removed, ended = {}, {}, {}, 0, {}

-- int writes a whole number where Lua makes text of it: tostring() would write large ones as 1.79e+15. Redis takes numbers as they are,
-- in calls and in replies.
local function int(n) return string.format('%.0f', n) end

-- after says whether offset a lies beyond b, byte by byte. Lua's own < follows the server's locale. What they begin with is mostly
-- the same, and long.
local function after(a, b)
  if a == '' or a == b or a == '-1' then return false end
  if b == '' or b == '-1' then return true end
  local i = 1
  while string.sub(a, i, i + 15) == string.sub(b, i, i + 15) do i = i + 16 end
  while true do
    local x, y = string.byte(a, i) or -1, string.byte(b, i) or -1
    if x ~= y then return x > y end
    i = i + 1
  end
end

local function retry_delay(n)
  if n < 1 then n = 1 end
  local base, span = 60000, 5000
  if n <= 10 then base, span = math.min(100 * 2 ^ n, 30000), 1000 end
  return math.floor(base + span * JITTER / 1000000)
end

-- life is the server's run_id: one that was restarted or promoted has another.
local function life()
  if LIFE == '' or LIFE == '?' then
    local info = redis.call('INFO', 'server')
    local _, at = string.find(info, 'run_id:', 1, true) -- a pattern would be tried at every byte
    LIFE = string.match(info, '^%w+', at + 1)
  end
  return LIFE
end

-- batch takes some more of a set or a hash, with SSCAN or HSCAN. A cursor means nothing to another server than the one that it
-- is from, so it carries the server's life; on another the walk begins again.
local function batch(scan, key, cursor, count)
  local at, from = string.match(cursor, '^(%d+)@(.+)$')
  if not from or from ~= life() then at = '0' end
  local found = redis.call(scan, key, at, 'COUNT', count)
  if found[1] ~= '0' then found[1] = found[1] .. '@' .. life() end
  return found
end

-- fence returns what new epochs lie above (fsm.Fence). Another life may have lost wakes of the one before.
local fenced
local function fence()
  if fenced then return fenced end
  local meta = redis.call('HMGET', P .. 'meta', 'life', 'base')
  local base = tonumber(meta[2] or '0')
  if life() ~= meta[1] then
    if meta[1] or LASTING then base = math.max(base + 1024000, now * 1024) end
    redis.call('HSET', P .. 'meta', 'life', life(), 'base', base)
  end
  fenced = base
  return base
end

-- tails are those that were read or set.
local tails = {}
local function tail_of(path)
  if not tails[path] then tails[path] = redis.call('HGET', P .. 's:' .. path, 't') or '' end
  return tails[path]
end

local function set_tail(path, tail)
  tails[path] = tail
  redis.call('HSET', P .. 's:' .. path, 't', tail)
end

-- note_tail raises the tail of a watched stream.
local function note_tail(path, tail)
  if tail ~= '' and after(tail, tail_of(path)) then set_tail(path, tail) end
end

local function watch(path, id)
  redis.call('SADD', P .. 'w:' .. path, id)
  if not redis.call('ZSCORE', P .. 'watched', path) then
    redis.call('ZADD', P .. 'watched', redis.call('HINCRBY', P .. 'meta', 'seq', 1), path)
  end
end

local function unwatch(path, id)
  redis.call('SREM', P .. 'w:' .. path, id)
  if redis.call('EXISTS', P .. 'w:' .. path) == 0 then
    tails[path] = nil
    redis.call('DEL', P .. 's:' .. path)
    redis.call('ZREM', P .. 'watched', path)
  end
end

local function is_dead(gen) return redis.call('ZSCORE', P .. 'dead', gen) end

-- place_of names the list that a consumer is on. Those that are idle are on none.
local function place_of(c)
  if c.state == 'waking' then return c.retired == 1 and 'retired' or 'waiting' end
  return c.state == 'live' and 'live' or nil
end

-- RECORD are the fields of a consumer's record that scripts read; save writes those from the fourth to the last but one.
local RECORD = {
  'sub', 'gen', 'primary', 'state', 'wake', 'by',
  'epoch', 'woke', 'listed', 'attempt', 'sent', 'failing', 'retired', 'stalled', 'moved', 'hidden', 'due', 'error',
}

-- load returns a consumer's record, or nil if there is none. Field was has it as it is stored, in the order of RECORD.
local function load(id)
  local r = redis.call('HMGET', P .. 'c:' .. id, unpack(RECORD))
  if not r[1] then return nil end
  for i = 7, 17 do r[i] = tonumber(r[i]) end
  local c = {
    id = id, was = r, sub = r[1], gen = r[2], primary = r[3], state = r[4], wake = r[5], by = r[6], epoch = r[7], woke = r[8],
    listed = r[9], attempt = r[10], sent = r[11], failing = r[12], retired = r[13], stalled = r[14], moved = r[15], hidden = r[16],
    due = r[17], error = r[18],
  }
  -- A version that does not note it may have made the record, or begun the wake: the lists are of one before then.
  c.unlisted = c.listed ~= c.epoch
  if c.unlisted or not c.woke then c.woke = 0 end
  c.was_due, c.was_place = c.due, place_of(c)
  return c
end

-- links returns the consumer's links: path -> { acked, tail }. They are read once.
local function links(c)
  if not c.links then
    c.links = {}
    local raw = redis.call('HGETALL', P .. 'l:' .. c.id)
    for i = 1, #raw, 2 do c.links[raw[i]] = { acked = raw[i + 1], tail = tail_of(raw[i]) } end
  end
  return c.links
end

local function save(c)
  c.listed = c.epoch
  local was, changes = c.was, { 'HSET', P .. 'c:' .. c.id }
  for i = 4, 17 do
    local field = RECORD[i]
    local value = c[field]
    if value ~= was[i] then
      changes[#changes + 1] = field
      changes[#changes + 1] = value
      was[i] = value
    end
  end
  if #changes > 2 then redis.call(unpack(changes)) end
  local place = place_of(c)
  if c.was_place and c.was_place ~= place then redis.call('ZREM', P .. c.was_place, c.id) end
  if place and (place ~= c.was_place or c.begun or c.unlisted) then
    redis.call('ZADD', P .. place, now, c.id)
  elseif place == 'waiting' then
    -- One that a version without these lists has resumed waits from now on, as far as is known.
    redis.call('ZADD', P .. place, 'NX', now, c.id)
  end
  if c.due == c.was_due then return end
  if c.due == 0 then
    redis.call('ZREM', P .. 'due', c.id)
  else
    redis.call('ZADD', P .. 'due', c.due, c.id)
  end
end

local function create(sub, gen, id, primary, acked)
  local floor = tonumber(redis.call('HGET', P .. 'meta', 'floor') or '0')
  local c = {
    id = id, sub = sub, gen = gen, primary = primary, state = 'idle', epoch = floor, wake = '', woke = 0, attempt = 0,
    sent = 0, failing = 0, retired = 0, stalled = 0, moved = 0, hidden = 0, due = 0, was = {}, was_due = 0,
  }
  redis.call('HSET', P .. 'c:' .. id, 'sub', sub, 'gen', gen, 'primary', primary)
  redis.call('HSET', P .. 'l:' .. id, primary, acked)
  redis.call('SADD', P .. 'b:' .. sub .. ':' .. gen, id)
  watch(primary, id)
  return c
end

-- over notes that the wake that a consumer is in is over (fsm.WakeEnd).
local function over(c, cause)
  if TRACED and c.state ~= 'idle' then
    ended[#ended + 1] = { c.id, c.sub, c.primary, c.epoch, c.wake, c.woke, cause }
  end
end

-- remove ends a consumer. Should one of the same id come again, its epochs go on above those of this one.
local function remove(c)
  over(c, 'removed')
  for path in pairs(links(c)) do unwatch(path, c.id) end
  unwatch(c.primary, c.id)
  redis.call('DEL', P .. 'c:' .. c.id, P .. 'l:' .. c.id)
  redis.call('ZREM', P .. 'due', c.id)
  for _, place in ipairs({ 'waiting', 'retired', 'live' }) do redis.call('ZREM', P .. place, c.id) end
  redis.call('SREM', P .. 'b:' .. c.sub .. ':' .. c.gen, c.id)
  local floor = tonumber(redis.call('HGET', P .. 'meta', 'floor') or '0')
  if c.epoch > floor then redis.call('HSET', P .. 'meta', 'floor', c.epoch) end
  removed = removed + 1
end

local function pending(c)
  for _, l in pairs(links(c)) do
    if after(l.tail, l.acked) then return true end
  end
  return false
end

-- streams is the flat list path, acked, tail, … of a consumer's links.
local function streams(c)
  local s = {}
  for path, l in pairs(links(c)) do
    s[#s + 1] = path
    s[#s + 1] = l.acked
    s[#s + 1] = l.tail
  end
  return s
end

-- new_wake_id is that of a wake that this call begins.
local function new_wake_id(c) return 'w_' .. string.sub(redis.sha1hex(NONCE .. c.id), 1, 20) end

local function begin(c)
  c.epoch = math.max(c.epoch, fence()) + 1
  c.wake = new_wake_id(c)
  c.moved, c.attempt, c.sent = 0, 0, 0
  c.woke = now
end

local function ask_for_attempt(c)
  wakes[#wakes + 1] = { c.id, c.sub, c.gen, c.primary, c.epoch, c.wake, c.attempt, streams(c), c.woke }
end

local function hand_out(c)
  if c.epoch <= fence() then
    over(c, 'lost')
    begin(c)
  end
  c.attempt, c.sent, c.due = c.attempt + 1, 1, now + WAKING
  ask_for_attempt(c)
end

-- repeated says whether this very call was carried out before: it began the consumer's wake, or was the last callback to succeed. Its
-- reply was lost, and the client has sent it again. What the reply asked for is asked for again.
local function repeated(c)
  if not c then return false end
  if c.wake ~= new_wake_id(c) then return c.by == NONCE end
  if c.state == 'waking' and c.sent == 1 and c.attempt == 1 and c.hidden == 0 then ask_for_attempt(c) end
  return true
end

local function settle(c)
  if c.state ~= 'idle' then return end
  c.due = 0
  if c.hidden > 0 then
    c.due = c.hidden + GRACE
    return
  end
  if not pending(c) then return end
  c.state, c.begun = 'waking', true
  begin(c)
  if c.retired == 1 then
    if c.failing == 0 then c.failing = now end
    c.due = c.failing + GC
  elseif c.stalled >= 3 then
    c.due = now + retry_delay(c.stalled - 2)
  else
    hand_out(c)
  end
end

local function rest(c)
  over(c, 'done')
  if c.moved == 1 or not pending(c) then c.stalled = 0 else c.stalled = c.stalled + 1 end
  c.state, c.attempt, c.sent = 'idle', 0, 0
  settle(c)
end

-- came_idle notes the streams of a consumer that has come to rest.
local function came_idle(c)
  for path in pairs(links(c)) do idle[#idle + 1] = path end
end

local function ack(c, path, to)
  local l = links(c)[path]
  if l and after(to, l.acked) then
    l.acked = to
    redis.call('HSET', P .. 'l:' .. c.id, path, to)
    c.moved = 1
  end
end

local function delivered(c)
  c.failing, c.retired = 0, 0
  if c.error then redis.call('HDEL', P .. 'c:' .. c.id, 'error') end
  c.error = nil
end

local function go_live(c)
  c.state, c.attempt, c.sent = 'live', 0, 0
  if c.hidden == 0 then c.due = now + LIVENESS end
end

local function show(c)
  c.hidden = 0
  if c.state == 'waking' then
    c.sent, c.due = 0, now
  elseif c.state == 'live' then
    c.due = now + LIVENESS
  end
end

local function expired(c) return c.failing > 0 and now >= c.failing + GC end

-- failed books a failed attempt. It returns false if that was the end of the consumer.
local function failed(c, retry_after, retired, why)
  if c.failing == 0 then c.failing = now end
  if expired(c) then
    remove(c)
    return false
  end
  c.sent, c.error = 0, why
  redis.call('HSET', P .. 'c:' .. c.id, 'error', why)
  if retired then
    c.retired, c.due = 1, c.failing + GC
  else
    c.due = now + math.max(retry_delay(c.attempt), math.min(retry_after, 3600000))
  end
  return true
end

-- current loads the consumer that a reference names, or returns nil if it is not in that wake or is gone.
local function current(id, epoch, wake)
  local c = load(id)
  if not c or c.epoch ~= tonumber(epoch) or c.wake ~= wake or is_dead(c.gen) then return nil end
  return c
end

local function outcome()
  local o = { wakes, idle, hidden, removed }
  if TRACED then o[5] = ended end
  return o
end
