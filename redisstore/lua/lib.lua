-- This file is the library of the scripts of a partition (library.go). It has the arguments, the comparison of offsets,
-- a consumer's record, and the steps that transitions are made of. A function with the same name as one in fsm/spec
-- mirrors it line by line. fsm/spec/doc.go lists the twins.
--
-- A server with functions keeps the library, and the locals of this file with it. So each call begins with begin_call,
-- which makes those anew that belong to one call.
--
-- KEYS[1]  the partition's prefix, such as "rv:{17}:". All keys of the partition begin with it, so they share its hash
-- slot.
-- KEYS[2]  never stored, like KEYS[1]. With it, a cluster keeps scripts from a partition that is being moved (keys.go).
-- ARGV[1]  now in ms, or -1 for Redis's own clock.
-- ARGV[2]  waking timeout, ms      ARGV[3]  liveness timeout, ms    ARGV[4]  grace of a gone stream, ms.
-- ARGV[5]  removal after failures, ms.
-- ARGV[6]  the server's incarnation, or "" to ask the server itself. For "?", the script asks it, too. Then the
-- database is not new: a partition without an incarnation on record has lost it.
-- ARGV[7]  nonce that wake ids are made from. It also identifies the call if the call is sent again.
-- ARGV[8]  jitter, millionths.
-- ARGV[9…] the script's own.
-- Two more arguments come last. The first one is 1 if wakes are not traced: outcomes then leave out the wakes that
-- ended with "done". The second one is the highest watermark of the partition that the caller has seen, 0 if it has
-- seen none.
--
-- A script returns two items: its own reply, and the watermark now (scripts.go).
--
-- Keys below the prefix:
--   `c:<consumer>`  hash  a consumer's record. Every record has these fields:
--       "sub gen primary state epoch wake woke attempt handed sent failing retired stalled moved hidden due".
--     `by` is the nonce of the last callback that succeeded.
--     `error` is why the last attempt failed, while failing is not 0.
--     `failing` is fsm.Consumer.FirstFailure, which may lie ahead.
--     `restarts` is the partition's count of restarts up to which it is up to date (load), none is 0.
--     `uncounted` is how much of the time since failing does not count, ms, none is 0.
--     `parked` is since when an attempt waits that was handed out and not begun, ms, none is 0. It and uncounted are
--     kept only while failing is not 0.
--     `profile` is what its subscription has set (fsm.Profile), none is the profile of the webhook spec.
--     `born` is the epoch that it was made with, if it was made with a profile.
--     `span` is an epoch, and how many events or bytes the first attempt brought that failed in it (fsm.Consumer.Span).
--     `holder` is an epoch, and fsm.Consumer.Holder in it: its number, and by whom.
--     `held` is an epoch, the number of the attempt handed out before, and fsm.Consumer.Held since then.
--     `nudged` is an epoch, fsm.Consumer.Nudged in it, ms, and "probed" if it is Probed.
--     `again` is the epoch in which an attempt that may have been sent was last taken back.
--     `past:<stream>` is the stream's tail when the consumer was given up.
--     `ends` is the Tail of an aside's link (fsm.Consumer.IsAside).
--     `replay` is the number of what an aside replays. `replaying` is the same number in the record of the aside's
--     consumer.
--     `replayed` is how many replays of the queue are over, none is 0.
--     `letter` is the number of the dead letter that it left when it was given up (fsm.Consumer.Letter).
--     `since:<stream>` is its epoch when it last went back in a stream that it is linked to (fsm.Link).
--     `since` is the latest of these, none is 0.
--   `l:<consumer>`  hash  stream path -> acked offset.
--   `s:<path>`  hash  the tail of a stream.
--     `t` is the highest tail noted. `closed` is the tail at which the stream was seen closed.
--     `r` is the partition's count of restarts at the stream's latest one. `was` is the tail before that restart.
--   `w:<path>`  set  consumers that a stream concerns: linked to it, or it is their primary.
--   `x:<consumer>`  set  its asides (fsm.Consumer.IsAside). Asides do not watch their stream.
--   `asides`  hash  generation of a subscription -> how many asides it has, none is 0. Asides that replay something
--   count under the generation and ":replays" instead.
--   `b:<sub>:<gen>`  set  consumers of a subscription, including its asides.
--   `watched`  zset  stream path -> when it came to be watched (a counter).
--   `due`  zset  consumer -> deadline, ms.
--   `waiting`, `aside`  zset  consumer that is waking and not retired -> since when, ms. Asides are on the second list.
--   `retired`, `live`  zset  consumer that is waking and retired, or live -> since when, ms.
--   `given_up`  zset  consumer that was given up -> when, ms.
--   `failing`, `hidden`  zset  consumer whose field of that name is not 0 -> the field, ms.
--   What lies ahead is not shown (fsm.Consumer.AsOf).
--   `quarantined`  hash  consumer in quarantine -> why. Its stored data is not as it should be (quarantine).
--   `dropping`  hash  generation of a deleted subscription with consumers or dead letters left -> subscription.
--   `a:<gen>`  set  nonces of links that have asked whether a generation is still on the list (link_stream.lua). It
--   lasts for a while, or until the generation is deleted.
--   `known`  hash  stream path -> its record (stream_of).
--   `d:<path>`  string  how many deletions were dealt with that the registry stream will report. Each deletion that it
--   reported first counts as -1. The key lasts for a minute.
--   `meta`  hash  of the partition:
--     `seq` is the counter of watched. `floor` is the highest epoch of any consumer removed. `restarts` counts restarts
--     of streams.
--     `life` (the incarnation), `base`, `mark`, `at` and `unresumed`: see fence. `stamp` and `removed`: see next_stamp and
--     drop_stream.
--     `deleted` is a version of the list. It has none of the subscriptions whose deletion the partition was told of.
--   `letters`  hash  number of a dead letter -> since when its endpoint had failed, its subscription, and what it tells
--   (redisstore.letter). The time is in ms, 0 if it was the only failure.
--   `dead`, `dead:<sub>`  zset  number of a dead letter, which is also its score: of all, or of one subscription.
--   `dead_counts`  hash  subscription -> how many dead letters it has.
--   `r:<consumer>`  zset  its replay queue (control.ReplayStore): numbers of dead letters and spans, which are also their
--   scores.
--   `rs:<consumer>`  hash  number of a span in the queue -> its fsm.ReplaySpan: from, "," and to.
--   `replays`  zset  consumers whose queue is not empty, all with score 0.
--   `event:<id>`  hash  an event that was handed over (fsm.OutboxRecord):
--     `event`, without its payload, `stream`, `status`, `attempts`, `consumer`, `at` (its Place), `last`, `delivered`,
--     `error` and `code` are the fields of that record. Times are in ms, 0 for none. `placed` is its fsm.OutboxPlace,
--     and `provider` that of the event. `keep` is its Retention, ms. `tries` are the last attempts, a line each: when, the
--     status of the answer, and why it failed. `deliver_at` is its DeliverAt, if it has one. `counted` is there if `event_streams`
--     counts it. Of an event that has expired so early that it may lie in its stream once more, `status` (then "expired"),
--     `placed`, `delivered` and `deliver_at` are left for a time.
--   `events:open`, `events:delivered`, `events:dead_letter`, `events:cancelled`  zset  fsm.OutboxPlace of each event on
--   that fsm.OutboxList, all with score 0.
--   `delayed`  zset  event that waits for its time -> fsm.OutboxRecord.DelayedUntil, ms.
--   `expire`  zset  event that was delivered or cancelled -> when it goes, ms.
--   `event_streams`  zset  stream of events -> how many of its events are kept. While it is being removed, the time in ms
--   since when, as a negative number.
--   `hour:<hour since 1970>`  hash  what became of events in that hour: handed_over, delivered, dead_letter, cancelled,
--   or `t` and an fsm.TimeBucket, then a space and the provider -> how many. It goes once it is too old to be shown.
--   `key:<key>`  hash  an idempotency key (fsm.OutboxKey): `id` and `asked`. It is in a partition of its own.
--   `lease`  string  the replica that owns the partition.
--   `n:<nonce>`  string  note of a call, for as long as it may be sent again because its reply was lost (note_call).
--   For due.lua, it has what the call has handed out: consumers, each with the number of its attempt.

-- The arguments of the call, and the time.
local P, now, micros
local WAKING, LIVENESS, GRACE, GC, INCARNATION, NONCE, JITTER, LASTING, SEEN, UNTRACED
local A = 9

-- What the caller of the script has to do (fsm.Outcome).
local deliveries, idle, hidden, gone, ended, left, quarantined

-- touched is true once this call has begun a wake, made or removed a consumer, or noted a tail: other replicas act on
-- these. The watermark then rises. So a caller that has seen the watermark knows when it is lost. Other changes come
-- again with their deadline, or are delivered again.
local touched, mark, lost

-- What the call has read of the partition (meta, fence, restarts).
local meta_read, fenced, restarted

-- tails are the tails that were read or set. For streams that were read, closed has the tail at which each was seen
-- closed. old_tails are the old tails of streams that this call has found to be gone.
local tails, closed, old_tails

-- links_read is how many links the call has read (can_read).
local links_read

-- begun are the consumers whose wakes this run of the call has begun.
local begun

-- The texts of numbers (int).
local TEXTS

local function begin_call(keys, args)
  P, now = keys[1], tonumber(args[1])
  micros = now * 1000
  if now < 0 then
    local t = redis.call('TIME')
    micros = tonumber(t[1]) * 1000000 + tonumber(t[2])
    now = math.floor(micros / 1000)
  end
  -- These stay texts: arithmetic takes them for numbers, and only few scripts need them.
  WAKING, LIVENESS, GRACE = args[2], args[3], args[4]
  GC, INCARNATION, NONCE, JITTER = args[5], args[6], args[7], args[8]
  LASTING = INCARNATION == '?'
  SEEN = tonumber(table.remove(args))
  UNTRACED = table.remove(args) == '1'
  deliveries, idle, hidden, gone, ended, left, quarantined = {}, {}, {}, {}, {}, {}, {}
  touched, mark, lost = false, SEEN, false
  meta_read, fenced, restarted = nil, nil, nil
  tails, closed, old_tails = {}, {}, nil
  links_read, begun = 0, {}
  TEXTS = { [0] = '0', '1' }
end

-- int writes a whole number as text: tostring() would write large ones as 1.79e+15. Redis takes numbers as they are, in
-- calls and in replies. But in a call, a number costs Redis more than int does. A script writes the same time or epoch
-- several times, so int keeps the texts of large numbers. It does not keep texts of small numbers: the Lua of the
-- embedded Redis makes a table as long as its largest small index. NUMBERS is the reverse of TEXTS, for what is read.
local NUMBERS = { ['0'] = 0, ['1'] = 1 }
local function int(n)
  local text = TEXTS[n]
  if not text then
    text = string.format('%.0f', n)
    if n > 2 ^ 31 then TEXTS[n] = text end
  end
  return text
end

-- other says whether offsets a and b are of two incarnations of their stream (fsm.Offset).
local function other(a, b)
  local i = string.find(a, '/', 1, true)
  local j = i and string.find(b, '/', 1, true)
  return j and string.sub(a, 1, i) ~= string.sub(b, 1, j) or false
end

-- differ_after is after for two offsets that differ. Neither is empty or the start. It compares byte by byte, because
-- Lua's own < follows the server's locale. The offsets mostly have a long common beginning.
local function differ_after(a, b)
  local i = 1
  while string.sub(a, i, i + 15) == string.sub(b, i, i + 15) do i = i + 16 end
  while true do
    local a1, a2, a3, a4 = string.byte(a, i, i + 3)
    local b1, b2, b3, b4 = string.byte(b, i, i + 3)
    local x, y
    if a1 ~= b1 then x, y = a1, b1
    elseif a2 ~= b2 then x, y = a2, b2
    elseif a3 ~= b3 then x, y = a3, b3
    else x, y = a4, b4 end
    if x ~= y then return (x or -1) > (y or -1) and not other(a, b) end
    i = i + 4
  end
end

-- after says whether offset a lies beyond b. Scripts ask this about the same two offsets again and again.
local last_a, last_b, last
local function after(a, b)
  if a == '' or a == b or a == '-1' then return false end
  if b == '' or b == '-1' then return true end
  if a ~= last_a or b ~= last_b then last_a, last_b, last = a, b, differ_after(a, b) end
  return last
end

local function retry_delay(n)
  if n < 1 then n = 1 end
  local base, span = FSM.RETRY_SLOW, FSM.RETRY_SLOW_JITTER
  if n <= FSM.RETRY_SLOW_AFTER then base, span = math.min(FSM.RETRY_BASE * 2 ^ n, FSM.RETRY_CAP), FSM.RETRY_JITTER end
  return math.floor(base + span * JITTER / FSM.JITTER_SPAN)
end

-- incarnation is the server's run_id, which changes with a restart or a promotion. It is "-" if the server does not
-- tell.
local function incarnation()
  if INCARNATION == '' or INCARNATION == '?' then
    local info = redis.call('INFO', 'server')
    local _, at = string.find(info, 'run_id:', 1, true) -- a pattern would be tried at every byte
    INCARNATION = at and string.match(info, '^%w+', at + 1) or '-'
  end
  return INCARNATION
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

-- ABANDONED, ms: if no replica has taken a lease for this long, no replica is left that remembers the watermark. It is
-- longer than a lease and a restart take. A caller that remembers nothing has no other sign.
local ABANDONED = 60000

-- meta reads the fields of the partition's meta that most calls need.
local function meta()
  if not meta_read then meta_read = redis.call('HMGET', P .. 'meta', 'life', 'base', 'mark', 'restarts') end
  return meta_read
end

-- fence returns the base that new epochs lie above (spec.Fence). It begins an incarnation if the partition may have lost
-- its latest changes. There are three signs. The server has another incarnation, or the watermark is lower than what
-- the caller has seen. Or no replica is left that has seen the watermark. Then `unresumed` is that base, until the owner
-- has made up for resumptions that may be lost.
local function fence()
  if fenced then return fenced end
  local recorded, base = meta()[1], tonumber(meta()[2] or '0')
  local at = SEEN == 0 and tonumber(redis.call('HGET', P .. 'meta', 'at'))
  local seen = math.max(mark, SEEN)
  mark = tonumber(meta()[3] or '0')
  lost = lost or SEEN > mark or at and now - at > ABANDONED
  if lost or incarnation() ~= recorded then
    if lost or recorded or LASTING then base = math.max(base + FSM.LEAST_EPOCHS, now * FSM.EPOCHS) end
    -- The other callers have seen less than this one, or little more. They must not all find the same loss.
    mark = lost and math.max(mark, seen) + 1000000 or math.max(mark, 1)
    redis.call('HSET', P .. 'meta', 'life', incarnation(), 'base', base, 'mark', mark, 'at', now)
    if lost or recorded then redis.call('HSET', P .. 'meta', 'unresumed', base) end
  end
  fenced = base
  return base
end

-- watermark returns what the caller must remember. It rises with each call that has touched something.
local function watermark()
  if touched then
    mark = redis.call('HINCRBY', P .. 'meta', 'mark', '1')
    if mark <= SEEN then
      lost, fenced, meta_read = true, nil, nil
      fence()
    end
  end
  return mark
end

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
  if after(tail, noted) and not ends_before(path, tail) or ends and tail ~= '' and tail == noted and not is_closed(path) then
    set_noted(path, tail, ends)
  end
end

-- in_chunks calls f with the items of a list, in chunks that unpack can take.
local function in_chunks(list, f)
  for i = 1, #list, 1000 do f(unpack(list, i, math.min(i + 999, #list))) end
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

-- next_stamp moves the partition's stamp. The stamp is a time, in microseconds. So a store that has lost its latest
-- changes does not give a stamp twice.
local function next_stamp()
  local stamp = math.max(micros, tonumber(redis.call('HGET', P .. 'meta', 'stamp') or '0') + 1)
  redis.call('HSET', P .. 'meta', 'stamp', int(stamp))
  return stamp
end

-- removed_stamp is the stamp of streams that are not on record: the stamp of the partition's latest removal.
local function removed_stamp() return tonumber(redis.call('HGET', P .. 'meta', 'removed') or '0') end

-- lost_version is the latest version of the list of subscriptions at which the partition may have lost its latest
-- changes (fsm.Stream.Lost). Versions are times (changed.lua), and so are the fences of the server's incarnations.
local function lost_version()
  local base = fence()
  return base > 0 and (math.floor(base / FSM.EPOCHS) + FSM.CLOCK_SKEW) * FSM.VERSIONS or 0
end

-- stream_of reads a stream's record (fsm.Stream), or returns nil if there is none. The record is stored as
--   first,noted,linked,stamp,till,lost,begin,tail,nonce
-- with a "?" in front while the stream is awaited. Times are in microseconds. The nonce is the nonce of the call that
-- linked the stream last.
local function stream_of(path)
  local raw = redis.call('HGET', P .. 'known', path)
  if not raw then return nil end
  local awaited = string.sub(raw, 1, 1) == '?'
  if awaited then raw = string.sub(raw, 2) end
  local f = {}
  for field in string.gmatch(raw .. ',', '([^,]*),') do f[#f + 1] = field end
  return {
    awaited = awaited, first = tonumber(f[1]), noted = tonumber(f[2]), linked = tonumber(f[3]), stamp = tonumber(f[4]),
    till = tonumber(f[5]), lost = tonumber(f[6]), begin = f[7], tail = f[8], nonce = f[9],
  }
end

local function put_stream(path, s)
  touched = true
  redis.call('HSET', P .. 'known', path, (s.awaited and '?' or '') .. table.concat({
    int(s.first), int(s.noted), int(s.linked), int(s.stamp), int(s.till), int(s.lost), s.begin, s.tail, s.nonce or '',
  }, ','))
end

-- drop_stream takes a stream off the record, if it is there. An answer of upstream that was asked for before does not
-- count any more.
local function drop_stream(path)
  touched = true
  redis.call('HDEL', P .. 'known', path)
  redis.call('HSET', P .. 'meta', 'removed', int(next_stamp()))
end

-- renew_stream renews the record of a stream that was made anew. Earlier answers of upstream, and earlier writes to the
-- stream, do not count any more.
local function renew_stream(path)
  local s = stream_of(path)
  if s then
    s.stamp = next_stamp()
    s.first, s.begin, s.tail = s.stamp, '-1', ''
    put_stream(path, s)
  end
end

-- stream_reply is what scripts return about a record: { record or "", removed stamp, lost version }.
local function stream_reply(path)
  return { redis.call('HGET', P .. 'known', path) or '', int(removed_stamp()), int(lost_version()) }
end

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

-- restarts counts the partition's streams that were made anew or deleted while they had too many consumers for one
-- script.
local function restarts()
  if not restarted then
    restarted = tonumber(meta_read and meta_read[4] or not meta_read and redis.call('HGET', P .. 'meta', 'restarts') or '0')
  end
  return restarted
end

-- count_restart notes that a stream was restarted. Until a consumer of it is visited, it counts as a consumer of the
-- old stream. A second deletion finds no tail. Then the old tail is still right for consumers that were not visited
-- since the first one.
local function count_restart(path)
  restarted = redis.call('HINCRBY', P .. 'meta', 'restarts', 1)
  redis.call('HSET', P .. 's:' .. path, 'r', restarted)
  if old_tails[path] ~= '' then redis.call('HSET', P .. 's:' .. path, 'was', old_tails[path]) end
end

-- visited returns the restart at which a consumer was last visited. Function is_former says whether a stream was made
-- anew or deleted since.
local function visited(id) return tonumber(redis.call('HGET', P .. 'c:' .. id, 'restarts') or '0') end
local function is_former(path, seen) return tonumber(redis.call('HGET', P .. 's:' .. path, 'r') or '0') > seen end

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
  if redis.call('HSET', P .. 'quarantined', id, why) == 1 then quarantined[#quarantined + 1] = { id, why } end
end

local function is_quarantined(id) return redis.call('HEXISTS', P .. 'quarantined', id) == 1 end

-- is_of_record says whether an error comes from stored data. Any other error comes from the server, such as a lack of
-- memory.
local function is_of_record(why)
  for _, part in ipairs({ 'attempt to ', 'bad argument', 'WRONGTYPE', 'not an integer', 'not a valid float', 'no number in' }) do
    if string.find(why, part, 1, true) then return true end
  end
  return false
end

-- look calls f for one of several consumers, so that an error with this one harms no other. It returns whether that went
-- well, and what f returned, or why it failed. A script that only reads leaves it at that.
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
  local asked = #deliveries
  local ok, result = look(f, id, ...)
  if ok then return result end
  for i = #deliveries, asked + 1, -1 do deliveries[i] = nil end
  quarantine(id, result)
end

-- visit calls f with a batch of the consumers in a set. It returns the cursor for the next call, "0" if there is none.
-- If a call stops because of the links it has read, the next one begins with the same batch. So f must find little left
-- to do for consumers that it has seen. The argument size is how many the set has, if that is known.
local function visit(set, cursor, f, size)
  local scan
  if string.sub(cursor, 1, 1) == '0' and (size or redis.call('SCARD', set)) <= 50 then
    scan = { '0', members(set) } -- at less than half the cost
  else
    scan = batch('SSCAN', set, cursor, '50')
  end
  for _, id in ipairs(scan[2]) do
    if not can_read(id) then return (string.match(cursor, '^%d+') or '0') .. '@' .. incarnation() end
    apart(f, id)
  end
  return scan[1]
end

-- RECORD are the fields of a consumer's record that scripts read. The function save writes the fields from the fifth
-- on. Each field costs, so a script that needs a rare field reads it by itself.
local RECORD = {
  'sub', 'gen', 'primary', 'profile', 'state', 'wake', 'by',
  'epoch', 'woke', 'attempt', 'handed', 'sent', 'failing', 'retired', 'stalled', 'moved', 'hidden', 'due', 'since',
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
  for i = 8, #RECORD - 1 do
    if not r[i] or not (r[i] >= 0 and r[i] < MOST) then return RECORD[i] end
  end
  return 'since'
end

-- record returns a consumer's record, or nil if there is none. It also returns nil if the record cannot be read, and
-- puts the consumer in quarantine. Field was has the record as it is stored, in the order of RECORD. The fields are
-- named twice, in RECORD and here, because a loop over RECORD takes 1 µs more.
local function record(id)
  local r = redis.call('HMGET', P .. 'c:' .. id, unpack(RECORD))
  if not r[1] and not r[2] and not r[5] and not r[8] then return nil end
  local since = r[19]
  for i = 8, #RECORD do r[i] = NUMBERS[r[i]] or tonumber(r[i]) end
  local epoch, woke, attempt, handed, sent, failing = r[8], r[9], r[10], r[11], r[12], r[13]
  local retired, stalled, moved, concealed, due = r[14], r[15], r[16], r[17], r[18]
  local s = r[5]
  local known = s == 'idle' or s == 'waking' or s == 'live' or s == 'given_up'
  if not (r[1] and r[2] and r[3] and r[6] and known and epoch and woke and attempt and handed and sent and failing and retired and
    stalled and moved and concealed and due) or since and not r[19] or #r[1] + #r[2] + #r[3] + #r[6] > LONGEST or
    not (epoch + woke + attempt + handed + sent + failing + retired + stalled + moved + concealed + due < MOST) or
    math.min(epoch, woke, attempt, handed, sent, failing, retired, stalled, moved, concealed, due) < 0 then
    return quarantine(id, 'its field ' .. wrong(r, known) .. ' is missing, too long, or not of its type')
  end
  local c = {
    id = id, was = r, sub = r[1], gen = r[2], primary = r[3], profile = r[4], state = r[5], wake = r[6], by = r[7], epoch = r[8],
    woke = r[9], attempt = r[10], handed = r[11], sent = r[12], failing = r[13], retired = r[14], stalled = r[15], moved = r[16],
    hidden = r[17], due = r[18], since = r[19], uncounted = 0, parked = 0,
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
  redis.call('HSET', P .. 'c:' .. id, 'sub', sub, 'gen', gen, 'primary', primary)
  if profile then redis.call('HSET', P .. 'c:' .. id, 'profile', profile) end
  if profile or aside then redis.call('HSET', P .. 'c:' .. id, 'born', aside and aside.born or int(epoch)) end
  if restarts() > 0 then redis.call('HSET', P .. 'c:' .. id, 'restarts', int(restarts())) end
  redis.call('HSET', P .. 'l:' .. id, primary, acked)
  redis.call('SADD', P .. 'b:' .. sub .. ':' .. gen, id)
  if aside then
    redis.call('HSET', P .. 'c:' .. id, 'ends', aside.ends)
    redis.call('SADD', P .. 'x:' .. aside.of, id)
    if aside.replay then redis.call('HSET', P .. 'c:' .. id, 'replay', aside.replay) end
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

-- ahead mirrors fsm.Offset.Ahead.
local function ahead(offset, acked) return after(offset, acked) or other(offset, acked) end

local function pending(c)
  for _, l in pairs(links(c)) do
    if ahead(l.tail, l.acked) then return true end
  end
  return false
end

-- streams returns the flat list path, acked, tail, … of a consumer's links.
local function streams(c)
  local s = {}
  for path, l in pairs(links(c)) do
    s[#s + 1] = path
    s[#s + 1] = l.acked
    s[#s + 1] = l.tail
  end
  return s
end

-- new_wake_id returns the id of a wake that this call begins.
local function new_wake_id(c) return 'w_' .. string.sub(redis.sha1hex(NONCE .. c.id), 1, 20) end

local function begin(c)
  touched = true
  begun[c.id] = true
  local base = fence()
  -- A server that does not tell its incarnation may have lost what another caller has seen. So epochs follow its clock.
  if incarnation() == '-' then base = math.max(base, now * FSM.EPOCHS) end
  c.epoch = math.max(c.epoch, base) + 1
  c.wake = new_wake_id(c)
  c.moved, c.attempt, c.handed, c.sent = 0, 0, 0, 0
  c.woke = now
end

-- profile_of returns what a consumer's profile says. It is how long an attempt may be out, whether failures never give
-- the consumer up, and the delays between attempts. Times are in ms (fsm.Profile).
local function profile_of(c)
  local numbers = {}
  for n in string.gmatch(c.profile, '%d+') do numbers[#numbers + 1] = tonumber(n) end
  if #numbers < 2 then error('no number in field profile', 0) end
  local attempt, lasting = table.remove(numbers, 1), table.remove(numbers, 1) > 0
  return attempt, lasting, numbers
end

-- patience returns how long an attempt of a consumer may be out.
local function patience(c)
  local attempt = c.profile and profile_of(c) or 0
  return attempt > 0 and attempt or tonumber(WAKING)
end

-- take_back takes back an attempt that is out and was not reported, so that it is made again. It does so only if the
-- profile counts only reported failures.
local function take_back(c)
  if c.sent == 0 or not c.profile then return end
  local _, _, delays = profile_of(c)
  if #delays == 0 then return end
  c.attempt, c.sent = c.attempt - 1, 0
  redis.call('HSET', P .. 'c:' .. c.id, 'again', int(c.epoch))
end

-- nudged_of returns fsm.Consumer.Nudged, 0 if it is zero. It also returns whether the consumer is fsm.Consumer.Probed.
local function nudged_of(c)
  local epoch, at, by = string.match(redis.call('HGET', P .. 'c:' .. c.id, 'nudged') or '', '^(%d+) (%d+)(.*)$')
  if tonumber(epoch) ~= c.epoch then return 0, false end
  return tonumber(at), by ~= ''
end

-- held_of returns fsm.Consumer.Held, "" if it is empty.
local function held_of(c)
  local held, own = redis.call('HGET', P .. 'c:' .. c.id, 'held') or '', int(c.epoch) .. ' ' .. int(c.handed) .. ' '
  return string.sub(held, 1, #own) == own and string.sub(held, #own + 1) or ''
end

-- stays says whether a reason to wait is one for which a delivery waits on (fsm.BlockReason.Stays).
local function stays(held) return held == 'rate' or held == 'consent' end

local function set_nudged(c, at, probed)
  if at > 0 then
    redis.call('HSET', P .. 'c:' .. c.id, 'nudged', int(c.epoch) .. ' ' .. int(at) .. (probed and ' probed' or ''))
  else
    redis.call('HDEL', P .. 'c:' .. c.id, 'nudged')
  end
end

-- waits says whether the next attempt of a consumer's wake is due later.
local function waits(c)
  return c.state == 'waking' and c.sent == 0 and c.retired == 0 and c.hidden == 0 and c.due > now
end

local function ask_for_attempt(c)
  local born, attempt, span, nudged, replay = 0, 0, 0, c.attempt > 1 and now < (nudged_of(c)) and 1 or 0, 0
  if c.profile then
    local kept = redis.call('HMGET', P .. 'c:' .. c.id, 'born', 'span', 'replay')
    born, attempt, replay = tonumber(kept[1] or '0') or error('no number in field born', 0), profile_of(c), kept[3] and 1 or 0
    if c.attempt > 1 and kept[2] then
      local epoch, n = string.match(kept[2], '^(%d+) (%d+)$')
      if tonumber(epoch) == c.epoch then span = tonumber(n) end
    end
  end
  deliveries[#deliveries + 1] = {
    c.id, c.sub, c.gen, c.primary, c.epoch, c.wake, c.attempt, streams(c), c.woke, born, attempt, span, c.handed, nudged, replay,
  }
end

-- uncount takes the time since a moment out of the failure clock, because no attempt could be made in it. The clock does
-- not hold what lies before the first failure.
local function uncount(c, since)
  if c.failing > 0 and since > 0 then c.uncounted = c.uncounted + math.max(0, now - math.max(since, c.failing)) end
end

-- uncount_unattempted takes the time since the next attempt was due, or was parked, out of the failure clock.
local function uncount_unattempted(c)
  uncount(c, c.parked > 0 and c.parked or c.due)
  c.parked = 0
end

-- begin_anew replaces a wake that may be lost by a new one. A push is still the same delivery, so its attempts count
-- on.
local function begin_anew(c)
  local was, attempt, kept = c.epoch, c.attempt, redis.call('HGET', P .. 'c:' .. c.id, 'span') or ''
  begin(c)
  local epoch, span = string.match(kept, '^(%d+) (%d+)$')
  if not c.profile or attempt == 0 or tonumber(epoch) ~= was or tonumber(span) == 0 then return end
  c.attempt = attempt
  redis.call('HSET', P .. 'c:' .. c.id, 'span', int(c.epoch) .. ' ' .. span)
end

local function hand_out(c)
  uncount_unattempted(c)
  if c.epoch <= fence() then
    over(c, 'lost')
    begin_anew(c)
  end
  c.attempt, c.handed, c.sent, c.due = c.attempt + 1, c.handed + 1, 1, now + patience(c)
  ask_for_attempt(c)
end

-- repeated says whether an earlier run carried out this very call. Then the call began the consumer's wake, or was the
-- last callback to succeed. Its reply was lost, and the client has sent it again. So repeated asks again for what the
-- reply asked for.
local function repeated(c)
  if not c or begun[c.id] then return false end
  if c.wake ~= new_wake_id(c) then return c.by == NONCE end
  if c.state == 'waking' and c.sent == 1 and c.handed == 1 and c.hidden == 0 then ask_for_attempt(c) end
  return true
end

-- carried_out says whether an earlier run that called note_call carried out this very call. REPEATED is how long
-- clients may repeat a call, ms. That is longer than a call may take (connect.go).
local REPEATED = 15000
local function carried_out() return redis.call('EXISTS', P .. 'n:' .. NONCE) == 1 end
local function note_call() redis.call('SET', P .. 'n:' .. NONCE, '', 'PX', REPEATED) end

-- wake_if_pending wakes an idle consumer that has work. If has_work is true, it need not look at all the links.
local function wake_if_pending(c, has_work)
  if c.state ~= 'idle' then return end
  c.due = 0
  if c.hidden > 0 then
    c.due = c.hidden + GRACE
    return
  end
  if not has_work and not pending(c) then return end
  c.state, c.begun = 'waking', true
  uncount(c, c.failing) -- rest_idle takes back what counted before
  begin(c)
  if c.retired == 1 then return end -- only a resumption ends that
  if c.stalled >= FSM.STALL_LIMIT then
    c.due = now + retry_delay(c.stalled - FSM.STALL_LIMIT + 1)
  else
    hand_out(c)
  end
end

-- rest_idle makes a consumer idle, and stops the failure clock.
local function rest_idle(c)
  if c.state == 'waking' and c.failing > 0 then
    uncount(c, c.parked)
    c.parked = 0
    c.uncounted = c.uncounted - math.max(0, now - c.failing)
  end
  c.state, c.attempt, c.sent = 'idle', 0, 0
end

local function rest(c)
  if not UNTRACED then over(c, 'done') end
  if c.moved == 1 or not pending(c) then c.stalled = 0 else c.stalled = c.stalled + 1 end
  rest_idle(c)
  wake_if_pending(c)
end

-- came_idle notes the streams of a consumer that has become idle.
local function came_idle(c)
  for path in pairs(links(c)) do idle[#idle + 1] = path end
end

-- finished ends the wake of a consumer, if it is in one. It wakes the consumer again if work is pending, and saves it.
-- An aside without pending work is removed.
local function finished(c)
  if c.state == 'idle' then
    wake_if_pending(c)
  elseif aside_of(c) and not pending(c) then
    if not UNTRACED then over(c, 'done') end
    c.state = 'idle'
    return remove(c)
  else
    came_idle(c)
    rest(c)
  end
  save(c)
end

-- moves says whether an ack moves a link forward.
local function moves(l, to) return ahead(to, l.acked) and not other(to, l.tail) end

-- ack counts only in a wake that began after the stream's present incarnation came into being (start_over).
local function ack(c, path, to)
  local l = links(c)[path]
  if l and moves(l, to) then
    if c.since == c.epoch and tonumber(redis.call('HGET', P .. 'c:' .. c.id, 'since:' .. path)) == c.epoch then return end
    l.acked = to
    redis.call('HSET', P .. 'l:' .. c.id, path, to)
    c.moved = 1
    return true
  end
end

-- behind returns the position behind what an attempt has brought (spec.behind).
local function behind(c, to, within)
  local ends = aside_of(c) and links(c)[c.primary].tail
  if ends and not after(to, ends) then return to end
  if ends then return after(within, ends) and ends or within end
  return redis.call('HGET', P .. 'c:' .. c.id, 'again') == int(c.epoch) and within or to
end

-- note notes a tail that a consumer has found by reading. The tail of an aside is its end, and does not change.
local function note(c, path, tail)
  local l = links(c)[path]
  if l and not aside_of(c) then
    note_tail(path, tail)
    l.tail = tail_of(path)
  end
end

local function delivered(c)
  if c.failing > 0 then redis.call('HDEL', P .. 'c:' .. c.id, 'error') end
  c.failing, c.uncounted, c.parked, c.retired = 0, 0, 0, 0
end

local function go_live(c)
  c.state, c.attempt, c.sent = 'live', 0, 0
  if c.hidden == 0 then c.due = now + LIVENESS end
end

local function show(c)
  if c.state == 'waking' then
    uncount(c, c.hidden)
    take_back(c)
  end
  c.hidden = 0
  if c.state == 'waking' then
    c.sent, c.due = 0, now
  elseif c.state == 'given_up' then
    c.due = 0
  elseif c.state == 'live' then
    c.due = now + LIVENESS
  end
end

-- keep_letters stores dead letters of a consumer's subscription. The list letters has two items for each: since when
-- deliveries had failed, as a text, and what it tells (redisstore.letter). It returns the number of the first.
-- O(letters).
local function keep_letters(c, letters)
  local first, n = next_stamp(), #letters / 2
  if n > 1 then redis.call('HSET', P .. 'meta', 'stamp', int(first + n - 1)) end
  local kept, numbers = {}, {}
  for i = 1, 2 * n, 2 do
    local number = int(first + (i - 1) / 2)
    kept[i], kept[i + 1] = number, letters[i] .. ' ' .. c.sub .. ' ' .. letters[i + 1]
    numbers[i], numbers[i + 1] = number, number
  end
  in_chunks(kept, function(...) redis.call('HSET', P .. 'letters', ...) end)
  in_chunks(numbers, function(...)
    redis.call('ZADD', P .. 'dead', ...)
    redis.call('ZADD', P .. 'dead:' .. c.sub, ...)
  end)
  redis.call('HINCRBY', P .. 'dead_counts', c.sub, int(n))
  return int(first)
end

-- letter_text returns what a dead letter tells if no attempt has left it (spec.letter). The values attempts and
-- born are texts, because cjson would round large numbers.
local function letter_text(c, id, path, from, to, class, why, attempts, born)
  local texts = cjson.encode({ g = c.gen, c = id, s = path, f = from, t = to, w = to, k = class, r = why or '' })
  return string.sub(texts, 1, -2) .. ',"a":' .. attempts .. ',"o":' .. (born or '0') .. '}'
end

-- leave_letters leaves the dead letters of a consumer, and of its asides, if the consumer goes with its stream for a
-- cause. The tail is the last one of that stream (spec.lost). O(asides).
local function leave_letters(c, cause, tail)
  local letters, ids, numbers = {}, aside_of(c) and { c.id } or redis.call('SMEMBERS', P .. 'x:' .. c.id), {}
  for _, id in ipairs(ids) do numbers[id] = tonumber(string.match(id, '%d+$')) end
  table.sort(ids, function(a, b) return numbers[a] < numbers[b] end)
  links_read = links_read + #ids
  local function lost(id, to)
    local r = redis.call('HMGET', P .. 'c:' .. id, 'replay', 'ends', 'attempt', 'failing', 'born', 'error')
    local acked, ends = redis.call('HGET', P .. 'l:' .. id, c.primary), to or r[2]
    if r[1] or not acked or not ends or not ahead(ends, acked) then return end
    letters[#letters + 1] = r[4]
    letters[#letters + 1] = letter_text(c, id, c.primary, acked, ends, cause, not to and r[6], r[3], r[5])
  end
  for _, id in ipairs(ids) do lost(id) end
  if not aside_of(c) and c.state ~= 'given_up' and c.profile and string.find(c.profile, '^%d+,[12]') then lost(c.id, tail) end
  if #letters == 0 then return end
  keep_letters(c, letters)
  left[#left + 1] = { c.sub, c.primary, cause, #letters / 2 }
end

-- leave_letter leaves the dead letter of a consumer that is given up, and notes its number (spec.unwoken).
-- Paths compare as offsets of one incarnation do. O(links).
local function leave_letter(c)
  local first
  for path, l in pairs(links(c)) do
    if ahead(l.tail, l.acked) and first ~= c.primary and (not first or path == c.primary or differ_after(first, path)) then first = path end
  end
  if not first or aside_of(c) then return end
  local l, kept = links(c)[first], redis.call('HMGET', P .. 'c:' .. c.id, 'error', 'born')
  redis.call('HSET', P .. 'c:' .. c.id, 'letter', keep_letters(c, {
    int(c.failing), letter_text(c, c.id, first, l.acked, l.tail, 'given_up', kept[1], int(c.attempt), kept[2]),
  }))
end

-- give_up gives a consumer up, and keeps what revive needs. O(links).
local function give_up(c)
  is_gone(c, 'given_up')
  leave_letter(c)
  c.state, c.attempt, c.stalled, c.moved, c.due = 'given_up', 0, 0, 0, 0
  for path, l in pairs(links(c)) do redis.call('HSET', P .. 'c:' .. c.id, 'past:' .. path, l.tail) end
end

-- news says whether a stream has had an event since its consumer was given up (fsm.Link). Function renewed says whether
-- any of its streams has, O(links).
local function news(c, path) return ahead(tail_of(path), redis.call('HGET', P .. 'c:' .. c.id, 'past:' .. path) or '') end

local function renewed(c)
  for path in pairs(links(c)) do
    if news(c, path) then return true end
  end
  return false
end

-- letter_of returns what a dead letter tells (redisstore.letter). It is nil if the letter is not kept, or cannot be
-- read.
local function letter_of(n)
  local text = string.match(redis.call('HGET', P .. 'letters', n) or '', '^%d+ %S+ (.+)$')
  local ok, letter = pcall(cjson.decode, text or '')
  return ok and type(letter) == 'table' and letter or nil
end

-- receiver_of returns the id of the consumer that a dead letter's events are for. For an aside, that is its consumer.
local function receiver_of(letter) return string.match(letter.c, '^([^:]*:[^:]*):') or letter.c end

-- unqueue takes a number out of a consumer's replay queue, if it is in it.
local function unqueue(id, n)
  if redis.call('ZREM', P .. 'r:' .. id, n) == 0 then return end
  redis.call('HDEL', P .. 'rs:' .. id, n)
  if redis.call('EXISTS', P .. 'r:' .. id) == 0 then
    redis.call('ZREM', P .. 'replays', id)
    redis.call('HDEL', P .. 'c:' .. id, 'replayed')
  end
end

-- replays says whether a consumer can replay a dead letter. The events must be of the consumer's present stream
-- (spec.Replays). It says no to two kinds of letters. A letter whose class begins with stream_ was left by a
-- stream that is gone. The letter of a given-up consumer is not read again: its replay revives the consumer
-- (replay_letters.lua).
local function replays(c, letter)
  local class, born = letter and letter.k or '', redis.call('HGET', P .. 'c:' .. c.id, 'born') or '0'
  if class == 'given_up' or string.sub(class, 1, 7) == 'stream_' then return false end
  return letter and letter.g == c.gen and (letter.o or 0) == tonumber(born) and after(letter.w or '', letter.f or '')
end

-- span_of returns from where to where a number in a consumer's queue replays. It is nil if the number's dead letter is
-- lost.
local function span_of(c, n)
  local span = redis.call('HGET', P .. 'rs:' .. c.id, n)
  if span then return string.match(span, '^(.*),(.*)$') end
  local letter = letter_of(n)
  if replays(c, letter) then return letter.f, letter.w end
end

-- replay_next begins the first replay in a consumer's queue, unless a replay is under way. For that, it makes an aside
-- (spec.StartReplay). It passes over what cannot be replayed, because the store has lost it. It begins nothing
-- of a stream that was made anew: once the consumer is loaded, its queue goes with it.
local function replay_next(c)
  if redis.call('HEXISTS', P .. 'c:' .. c.id, 'replaying') == 1 then return end
  if restarts() > 0 and is_former(c.primary, visited(c.id)) then return end
  while true do
    local n = redis.call('ZRANGE', P .. 'r:' .. c.id, 0, 0)[1]
    if not n then return end
    local from, to = span_of(c, n)
    if from then
      local aside = create(c.sub, c.gen, c.id .. ':' .. n, c.primary, from, math.max(c.epoch, floor()), c.profile, {
        of = c.id, born = redis.call('HGET', P .. 'c:' .. c.id, 'born') or '0', ends = to, replay = n,
      })
      redis.call('HSET', P .. 'c:' .. c.id, 'replaying', n)
      aside.state, aside.retired = 'waking', c.retired
      begin(aside)
      if c.retired == 0 then hand_out(aside) end
      return save(aside)
    end
    unqueue(c.id, n)
  end
end

-- queue puts a number into a consumer's replay queue.
local function queue(c, n)
  redis.call('ZADD', P .. 'r:' .. c.id, n, n)
  redis.call('ZADD', P .. 'replays', 0, c.id)
  replay_next(c)
end

-- replay_ends ends the replay under way, whether or not it is complete, and begins the next one. O(links of an aside).
local function replay_ends(c, n)
  local aside = record(c.id .. ':' .. n)
  if aside then remove(aside) end
  redis.call('HDEL', P .. 'c:' .. c.id, 'replaying')
  unqueue(c.id, n)
  if not is_dead(c.gen) then replay_next(c) end
end

-- drop_letter drops a dead letter, and its replay with it. The letter need not be readable.
local function drop_letter(n)
  local text = redis.call('HGET', P .. 'letters', n)
  if not text then return end
  local letter, sub = letter_of(n), string.match(text, '^%d+ (%S+)')
  redis.call('HDEL', P .. 'letters', n)
  redis.call('ZREM', P .. 'dead', n)
  if sub then
    redis.call('ZREM', P .. 'dead:' .. sub, n)
    if redis.call('HINCRBY', P .. 'dead_counts', sub, -1) <= 0 then redis.call('HDEL', P .. 'dead_counts', sub) end
  end
  local id = letter and receiver_of(letter)
  if not id or not redis.call('ZSCORE', P .. 'r:' .. id, n) then return end
  if redis.call('HGET', P .. 'c:' .. id, 'replaying') == n then
    local c = record(id)
    if c then replay_ends(c, n) else unqueue(id, n) end
  else
    unqueue(id, n)
  end
end

-- erase removes an unreadable consumer from the store.
local function erase(id, set)
  local paths = redis.pcall('HKEYS', P .. 'l:' .. id)
  if paths.err then paths = {} end
  local primary = redis.pcall('HGET', P .. 'c:' .. id, 'primary')
  if type(primary) == 'string' then paths[#paths + 1] = primary end
  touched = true
  unwatch(paths, id)
  redis.call('UNLINK', P .. 'c:' .. id, P .. 'l:' .. id, P .. 'x:' .. id, P .. 'r:' .. id, P .. 'rs:' .. id)
  redis.call('ZREM', P .. 'replays', id)
  redis.call('SREM', set, id)
  redis.call('HDEL', P .. 'quarantined', id)
end

-- revive makes a given-up consumer idle again. It drops the dead letter that the consumer has left, if that is still
-- there. O(links).
local function revive(c)
  local letter = redis.call('HGET', P .. 'c:' .. c.id, 'letter')
  if letter then
    drop_letter(letter)
    redis.call('HDEL', P .. 'c:' .. c.id, 'letter')
  end
  c.state = 'idle'
  delivered(c)
  for path in pairs(links(c)) do redis.call('HDEL', P .. 'c:' .. c.id, 'past:' .. path) end
end

-- observed acts on a noted tail of a stream (spec.Observe), and says whether that changed the consumer. It
-- looks at other streams only if there is work on this one: the call that raises their tails wakes the consumer for
-- them.
local function observed(c, path)
  local has_work = false
  if c.hidden == 0 then
    local rests = c.state == 'idle' or c.state == 'given_up'
    local acked = rests and redis.call('HGET', P .. 'l:' .. c.id, path)
    if not acked or not ahead(tail_of(path), acked) then return false end
    if c.state == 'given_up' and not news(c, path) then return false end
    has_work = true
  else
    if c.primary ~= path then return false end
    show(c)
  end
  if c.state == 'given_up' and renewed(c) then revive(c) end
  wake_if_pending(c, has_work)
  return true
end

-- delay_of returns how long a consumer waits after failed attempt n, by the delays of its profile.
local function delay_of(delays, n)
  local d = delays[math.min(math.max(n, 1), #delays)]
  local least, span = d * (100 - FSM.RETRY_VARIANCE) / 100, d * 2 * FSM.RETRY_VARIANCE / 100
  return math.floor(least + span * JITTER / FSM.JITTER_SPAN)
end

-- place_in_stream returns where a consumer stands in its stream (fsm.Consumer.Place).
local function place_in_stream(id, path)
  return (redis.call('HGET', P .. 'c:' .. id, 'born') or '0') .. ' ' .. (redis.call('HGET', P .. 'l:' .. id, path) or '')
end

-- events_of returns the list of the events with a status.
local function events_of(status) return P .. 'events:' .. ((status == 'pending' or status == 'delivering') and 'open' or status) end

-- begins_at returns from when on an event is delivered (fsm.OutboxEvent.Begins).
local function begins_at(placed, begins) return math.max(tonumber(string.sub(placed, 1, 13)), tonumber(begins or '0')) end

-- is_removing says whether a stream of events is being removed: no event in it is new.
local function is_removing(stream) return tonumber(redis.call('ZSCORE', P .. 'event_streams', stream) or '0') < 0 end

-- count_in_stream counts an event as kept in its stream, unless it is. An earlier version does not count those that it keeps.
local function count_in_stream(id, stream)
  if redis.call('HSETNX', P .. 'event:' .. id, 'counted', '1') == 1 then redis.call('ZINCRBY', P .. 'event_streams', 1, stream) end
end

-- forget_expired drops an event that was delivered or cancelled long enough ago. It says whether it did.
local function forget_expired(id)
  local till = redis.call('ZSCORE', P .. 'expire', id)
  if not till or tonumber(till) > now then return false end
  local key = P .. 'event:' .. id
  local status, placed, delivered_at, begins, stream, counted =
    unpack(redis.call('HMGET', key, 'status', 'placed', 'delivered', 'deliver_at', 'stream', 'counted'))
  redis.call('ZREM', P .. 'expire', id)
  redis.call('DEL', key)
  if not placed then return true end
  if counted then redis.call('ZINCRBY', P .. 'event_streams', -1, stream) end
  redis.call('ZREM', events_of(status), placed)
  redis.call('ZREM', P .. 'events:open', placed) -- a version without lists may have delivered it
  local left = begins_at(placed, begins) + FSM.OUTBOX_RETENTION - now
  if left > 0 then
    redis.call('HSET', key, 'status', 'expired', 'placed', placed, 'delivered', delivered_at, 'deliver_at', begins or '0')
    redis.call('PEXPIRE', key, int(math.max(left, FSM.OUTBOX_RETENTION)))
  end
  return true
end

-- count_event counts, in the present hour, what has become of an event.
local function count_event(what, provider)
  local key = P .. 'hour:' .. int(math.floor(now / 3600000))
  local counts = redis.call('HLEN', key)
  if counts >= FSM.MAX_OUTBOX_COUNTS and redis.call('HEXISTS', key, what .. ' ' .. provider) == 0 then provider = '(other)' end
  redis.call('HINCRBY', key, what .. ' ' .. provider, 1)
  if counts == 0 then redis.call('PEXPIRE', key, FSM.OUTBOX_COUNTED) end
end

-- event_bucket is fsm.TimeBucket.
local function event_bucket(millis)
  local doubled, millis = 0, math.max(millis, 0)
  while millis >= 32 do
    doubled, millis = doubled + 1, math.floor(millis / 2)
  end
  return doubled * 16 + millis
end

-- keep_event keeps an event that was handed over. It lies in its stream behind the place of its consumer.
local function keep_event(id, event, placed, provider, keep, begins, stream, consumer, place)
  redis.call('DEL', P .. 'event:' .. id)
  redis.call('HSET', P .. 'event:' .. id, 'event', event, 'placed', placed, 'provider', provider, 'keep', keep, 'stream', stream, 'status',
    'pending', 'attempts', '0', 'consumer', consumer, 'at', place, 'last', '0', 'delivered', '0', 'error', '', 'code', '0')
  if begins ~= '0' then redis.call('HSET', P .. 'event:' .. id, 'deliver_at', begins) end
  redis.call('ZADD', P .. 'events:open', 0, placed)
  count_in_stream(id, stream)
  count_event('handed_over', provider)
end

-- event_status returns the present status of an event that is not over (fsm.OutboxRecord.State).
local function event_status(status, by, at, delivered_at)
  if status ~= 'pending' and status ~= 'delivering' then return status end
  if by == '' then return 'pending' end
  local c = record(by)
  local place = c and place_in_stream(c.id, c.primary)
  if not c or string.match(at, '^%S*') ~= string.match(place, '^%S*') then
    return delivered_at == '0' and 'dead_letter' or 'delivered'
  end
  if status == 'pending' or c.state ~= 'waking' or place ~= at then return 'pending' end
  return c.sent == 1 and 'delivering' or c.attempt > 0 and 'retrying' or 'pending'
end

-- expire_event has an event go once its time is over. Without a field, the event is of a version that kept all alike.
local function expire_event(id)
  local keep = redis.call('HGET', P .. 'event:' .. id, 'keep') or FSM.OUTBOX_RETENTION
  redis.call('ZADD', P .. 'expire', int(now + tonumber(keep)), id)
end

-- event_is gives an event another status.
local function event_is(id, was, status)
  local key, from, to = P .. 'event:' .. id, events_of(was), events_of(status)
  redis.call('HSET', key, 'status', status)
  if from == to then return end
  local placed, provider, delivered_at, begins = unpack(redis.call('HMGET', key, 'placed', 'provider', 'delivered', 'deliver_at'))
  if not placed then return end
  redis.call('ZREM', from, placed)
  redis.call('ZADD', to, 0, placed)
  if status == 'delivering' or status == 'delivered' and delivered_at ~= '0' then return end
  count_event(status, provider)
  if status == 'delivered' then count_event('t' .. event_bucket(now - begins_at(placed, begins)), provider) end
end

-- tried returns the last attempts of an event with one more.
local function tried(tries, code, why)
  tries = (tries or '') .. int(now) .. ' ' .. code .. ' ' .. string.gsub(why, '\n', ' ') .. '\n'
  local _, n = string.gsub(tries, '\n', '')
  return n > FSM.MAX_OUTBOX_TRIES and string.match(tries, '\n(.*)$') or tries
end

-- event_failed notes why an attempt to send an event has failed, and the consumer that brings the event from now on.
local function event_failed(id, by, attempts, why, code)
  local key = P .. 'event:' .. id
  local status, tries = unpack(redis.call('HMGET', key, 'status', 'tries'))
  if status ~= 'delivering' then return end
  redis.call('HSET', key, 'consumer', by, 'attempts', int(attempts), 'last', int(now), 'error', why, 'code', code, 'tries',
    tried(tries, code, why))
end

-- event_over notes that an event is delivered, or dead.
local function event_over(id, attempts, dead, why, code)
  local key = P .. 'event:' .. id
  local status, delivered_at, tries = unpack(redis.call('HMGET', key, 'status', 'delivered', 'tries'))
  if status ~= 'delivering' then return end
  redis.call('HSET', key, 'attempts', int(attempts), 'last', int(now), 'error', why, 'code', code, 'tries', tried(tries, code, why))
  if dead then -- a replay of what was delivered may be
    event_is(id, status, delivered_at == '0' and 'dead_letter' or 'delivered')
  else
    event_is(id, status, 'delivered')
    redis.call('HSET', key, 'delivered', int(now))
    expire_event(id)
  end
end

-- put_profile gives a consumer the present profile of its subscription.
local function put_profile(c, profile)
  if profile == (c.profile or '') then return end
  c.profile = profile ~= '' and profile
  if c.profile then
    redis.call('HSET', P .. 'c:' .. c.id, 'profile', profile)
  else
    redis.call('HDEL', P .. 'c:' .. c.id, 'profile')
  end
end

-- failed books a failed attempt. If it was the last attempt of the profile, the consumer is given up. Without delays in
-- the profile, the consumer is given up if the attempt began after failures had gone on for long enough. A lasting
-- profile never gives the consumer up. A nudged attempt does not count: the next one is due as it was before.
-- from is when the failure begins to count, which may lie ahead; nil is now.
local function failed(c, retry_after, retired, why, profile, span, from)
  local began_at, wait = c.due - patience(c), math.min(retry_after, FSM.RETRY_AFTER_MAX)
  local nudged, probed = nudged_of(c)
  put_profile(c, profile)
  if nudged > 0 then set_nudged(c, 0) end
  local lasting, delays, last = false, nil, false
  if c.profile then
    local _
    _, lasting, delays = profile_of(c)
    if #delays == 0 then delays = nil end
  end
  from = from or now
  if c.failing == 0 or c.failing > from then c.failing = from end
  c.sent = 0
  redis.call('HSET', P .. 'c:' .. c.id, 'error', why)
  if c.attempt == 1 and c.profile then redis.call('HSET', P .. 'c:' .. c.id, 'span', int(c.epoch) .. ' ' .. span) end
  if delays then
    last = c.attempt > #delays
  else
    last = began_at >= c.failing + c.uncounted + GC
  end
  if retired then
    c.retired, c.due = 1, 0
  elseif began_at < nudged then
    c.attempt, c.due = c.attempt - 1, now + math.max(nudged - now, wait)
    if not probed then set_nudged(c, now) end
  elseif last and not lasting then
    give_up(c)
  else
    c.due = now + math.max(delays and delay_of(delays, c.attempt) or retry_delay(c.attempt), wait)
  end
end

-- steps_aside says whether the events of a failed attempt step aside (spec.stepsAside).
local function steps_aside(c, profile, to, within)
  if not string.find(profile, '^%d+,2') or aside_of(c) then return false end
  local l = links(c)[c.primary]
  to = behind(c, to, within)
  return l and moves(l, within) and moves(l, to) and not after(to, l.tail) and
    redis.call('SCARD', P .. 'x:' .. c.id) < FSM.MAX_ASIDES and
    tonumber(redis.call('HGET', P .. 'asides', c.gen) or '0') < FSM.MAX_SUBSCRIPTION_ASIDES
end

-- step_aside makes the aside that goes on with a failed attempt, and returns its id. The consumer goes on behind its
-- events (spec.stepAside).
local function step_aside(c, retry_after, why, profile, span, to, within)
  local aside = create(c.sub, c.gen, c.id .. ':' .. int(c.epoch), c.primary, links(c)[c.primary].acked, c.epoch, c.profile, {
    of = c.id, born = redis.call('HGET', P .. 'c:' .. c.id, 'born') or '0', ends = within,
  })
  aside.state = 'waking'
  begin(aside)
  aside.attempt, aside.due, aside.failing, aside.uncounted = c.attempt, c.due, c.failing, c.uncounted
  local nudged, probed = nudged_of(c)
  if nudged > 0 then set_nudged(aside, nudged, probed) end
  failed(aside, retry_after, false, why, profile, span)
  redis.call('HSET', P .. 'c:' .. aside.id, 'span', int(aside.epoch) .. ' ' .. span)
  save(aside)
  put_profile(c, profile)
  delivered(c)
  ack(c, c.primary, behind(c, to, within))
  finished(c)
  return aside.id
end

-- go_back leads a link of a consumer back to an offset. What a worker of the present wake acks does not count any more.
local function go_back(c, path, to)
  links(c)[path].acked = to
  c.since = c.epoch
  redis.call('HSET', P .. 'c:' .. c.id, 'since:' .. path, int(c.epoch))
  redis.call('HSET', P .. 'l:' .. c.id, path, to)
end

-- begin_again ends the wake of a consumer that has gone back. It begins another wake if work is pending.
local function begin_again(c, cause)
  if c.state == 'given_up' then revive(c) end
  over(c, cause)
  rest_idle(c)
  came_idle(c)
  wake_if_pending(c)
end

-- start_over makes a consumer start over in streams that were made anew or deleted (spec.Restart). If its
-- primary was made anew, start_over replaces it by a new consumer, and returns that one. If its primary was deleted,
-- start_over removes it and returns nil. The argument was is the old tail of its primary. If it is nil, the tail counts
-- that count_restart has noted.
local function start_over(c, made_anew, was)
  if made_anew(c.primary) then
    local tail, ends = tail_of(c.primary), is_closed(c.primary)
    local cause = tail == '' and 'stream_deleted' or 'stream_recreated'
    leave_letters(c, cause, was or redis.call('HGET', P .. 's:' .. c.primary, 'was') or '')
    remove(c, cause)
    if tail == '' or aside_of(c) then return nil end
    local anew = create(c.sub, c.gen, c.id, c.primary, '-1', c.epoch, c.profile)
    set_noted(c.primary, tail, ends)
    wake_if_pending(anew)
    save(anew)
    return anew
  end
  local fenced_off = false
  for path, l in pairs(links(c)) do
    if made_anew(path) then
      go_back(c, path, '-1')
      if c.state == 'given_up' then redis.call('HDEL', P .. 'c:' .. c.id, 'past:' .. path) end
      fenced_off = fenced_off or l.tail ~= ''
    end
  end
  if fenced_off then begin_again(c, 'restarted') end
  save(c)
  return c
end

-- load returns a consumer as it is now, or nil if there is none. If one of its streams was made anew or deleted since
-- its last visit, it starts over now.
local function load(id)
  local c = record(id)
  if not c or restarts() == 0 then return c end
  local seen = visited(id)
  if seen == restarts() or is_dead(c.gen) then return c end
  c = start_over(c, function(path) return is_former(path, seen) end)
  if c then redis.call('HSET', P .. 'c:' .. id, 'restarts', int(restarts())) end
  return c
end

-- few returns the consumers of a stream, if one script can handle all of them.
local function few(path)
  if redis.call('SCARD', P .. 'w:' .. path) > 50 then return nil end
  local ids, sum = members(P .. 'w:' .. path), 0
  for _, id in ipairs(ids) do sum = sum + size_of('HLEN', P .. 'l:' .. id) + size_of('SCARD', P .. 'x:' .. id) end
  return sum <= LINKS_READ and ids or nil
end

-- all_start_over makes the consumers of a stream whose tail was changed start over. If they are many, the first call
-- counts a restart. From then on every script follows that count, so acks and tail change together. Each call visits
-- some of them, and returns the next cursor.
local function all_start_over(path, cursor)
  local function see_to(id, made_anew)
    local c = load(id)
    if not c then return end
    if not is_dead(c.gen) then
      if made_anew then start_over(c, made_anew, old_tails[path]) end
    elseif c.primary == path and tail_of(path) == '' then
      remove(c, 'stream_deleted')
    end
  end
  if cursor == '0' then
    local ids = few(path)
    if ids then
      for _, id in ipairs(ids) do apart(see_to, id, function(p) return p == path end) end
      return '0'
    end
    count_restart(path)
  end
  return visit(P .. 'w:' .. path, cursor, see_to)
end

-- current gets the consumer of a reference, with load. If neither offsets nor tails matter, the caller passes record
-- instead. It returns nil if the consumer is gone or is not in that wake.
local function current(get, id, epoch, wake)
  local c = get(id)
  if not c or c.epoch ~= tonumber(epoch) or c.wake ~= wake or c.state == 'given_up' or is_dead(c.gen) then return nil end
  return c
end

-- attempt_out says whether the attempt of this number, handed, is out (spec.Out).
local function attempt_out(c, handed)
  return c.state == 'waking' and c.sent == 1 and c.handed == tonumber(handed) and c.hidden == 0
end

-- replay_over follows a complete replay. It drops the replay's letter and begins the next replay.
local function replay_over(of, n)
  local c = record(of)
  if not c then return unqueue(of, n) end
  redis.call('HINCRBY', P .. 'c:' .. of, 'replayed', 1)
  if redis.call('HEXISTS', P .. 'letters', n) == 1 then drop_letter(n) else replay_ends(c, n) end
end

-- letters_of returns the numbers of the first letters of a span (fsm.LetterSpan), of all streams, at most so many.
local function letters_of(sub, from, through, most)
  return redis.call('ZRANGEBYSCORE', P .. (sub == '' and 'dead' or 'dead:' .. sub), from, through, 'LIMIT', 0, most)
end

-- is_of says whether a dead letter is for this consumer, or for any if the id is "".
local function is_of(letter, id) return id == '' or letter and receiver_of(letter) == id end

-- or_nil returns a list for a reply. An empty list becomes false, which is nil in the reply and costs Redis less.
local function or_nil(list) return #list > 0 and list end

local function outcome() return { or_nil(deliveries), or_nil(idle), or_nil(hidden), or_nil(gone), or_nil(ended), or_nil(left), or_nil(quarantined) } end

-- reply returns the reply of a script: its own, and the watermark.
local function reply(own) return { own, watermark() } end
