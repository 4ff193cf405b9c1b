-- One call of a script of a partition: its arguments, and what it has read and done. This file begins the library of
-- these scripts (library.go). A function with the same name as one in fsm/spec mirrors it line by line. fsm/spec/doc.go
-- lists the twins.
--
-- A server with functions keeps the library, and the locals of this file with it. So each call begins with begin_call,
-- which makes those anew that belong to one call.
--
-- KEYS[1]  the partition's prefix, such as "rv:{17}:". All keys of the partition begin with it, so they share its hash
-- slot.
-- KEYS[2]  never stored, like KEYS[1]. With it, a cluster keeps scripts from a partition that is being moved (keys.go).
-- ARGV[1]  settings, which seldom change from call to call, with a space between them:
--   now in ms, or -1 for Redis's own clock
--   the waking timeout, the liveness timeout, the grace of a gone stream, and the removal after failures, all in ms
--   1 if wakes are not traced: outcomes then leave out the wakes that ended with "done"
--   the server's incarnation, or "" to ask the server itself. For "?", the script asks it, too. Then the database is
--   not new: a partition without an incarnation on record has lost it.
-- ARGV[2]  nonce that wake ids are made from. It also identifies the call if the call is sent again.
-- ARGV[3]  jitter, millionths.
-- ARGV[4]  the highest watermark of the partition that the caller has seen, 0 if it has seen none.
-- ARGV[5…] the script's own.
--
-- A script returns a list: the watermark now, the outcome, and then its own items (reply.lua).

-- The arguments of the call.
local P
local WAKING, LIVENESS, GRACE, GC, INCARNATION, NONCE, JITTER, LASTING, SEEN, UNTRACED
local A = 5

-- last_settings are the settings that were read last, and last_now is the time in them.
local last_settings, last_now

-- The time of the call, once it is known (now, micros).
local time_ms, time_micros

-- outcome is what the caller of the script has to do (fsm.Outcome): a list of items, each with its kind first.
local outcome = {}

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

local function begin_call(keys, args)
  if args[1] ~= last_settings then
    local at, untraced
    -- The timeouts stay texts: arithmetic takes them for numbers, and only few scripts need them.
    at, WAKING, LIVENESS, GRACE, GC, untraced, INCARNATION =
      string.match(args[1], '^(%-?%d+) (%d+) (%d+) (%d+) (%d+) ([01]) (.*)$')
    last_settings, last_now, UNTRACED, LASTING = args[1], tonumber(at), untraced == '1', INCARNATION == '?'
  end
  P, NONCE, JITTER, SEEN = keys[1], args[2], args[3], tonumber(args[4])
  time_ms, time_micros = nil, last_now >= 0 and last_now * 1000 or nil
  if outcome[1] then outcome = {} end
  touched, mark, lost = false, SEEN, false
  meta_read, fenced, restarted, old_tails = nil, nil, nil, nil
  tails, closed = {}, {}
  links_read, begun = 0, {}
end

-- micros returns the time in microseconds, and now returns it in ms. A call has one time. Many calls need none.
local function micros()
  if not time_micros then
    local t = redis.call('TIME')
    time_micros = t[1] * 1000000 + t[2]
  end
  return time_micros
end

local function now()
  time_ms = time_ms or math.floor(micros() / 1000)
  return time_ms
end

-- tell adds an item to the outcome: its kind, and what belongs to it (addTo in reply.go).
local function tell(...) outcome[#outcome + 1] = { ... } end

-- int writes a whole number as text: tostring() would write large ones as 1.79e+15. Redis takes numbers as they are, in
-- calls and in replies. But in a call, a number costs Redis more than int does. The format takes large numbers only on
-- servers of 64 bits (Store.Check), at less than half the cost of %.0f.
local function int(n) return string.format('%d', n) end

-- carried_out says whether an earlier run that called note_call carried out this very call. REPEATED is how long
-- clients may repeat a call, ms. That is longer than a call may take (connect.go).
local REPEATED = 15000
local function carried_out() return redis.call('EXISTS', P .. 'n:' .. NONCE) == 1 end
local function note_call() redis.call('SET', P .. 'n:' .. NONCE, '', 'PX', REPEATED) end

-- in_chunks calls f with the items of a list, in chunks that unpack can take.
local function in_chunks(list, f)
  for i = 1, #list, 1000 do f(unpack(list, i, math.min(i + 999, #list))) end
end
