-- Transitions that several scripts make (fsm/spec/transitions.go, fsm/spec/steps.go).

-- give_up gives a consumer up, and keeps what revive needs. O(links).
local function give_up(c)
  is_gone(c, 'given_up')
  leave_letter(c)
  c.state, c.attempt, c.stalled, c.moved, c.due = 'given_up', 0, 0, 0, 0
  for path, l in pairs(links(c)) do redis.call('HSET', P .. 'f:' .. c.id, 'past:' .. path, l.tail) end
end

-- news says whether a stream has had an event since its consumer was given up (fsm.Link). Function renewed says whether
-- any of its streams has, O(links).
local function news(c, path)
  return ahead(tail_of(path), redis.call('HGET', P .. 'f:' .. c.id, 'past:' .. path) or '')
end

local function renewed(c)
  for path in pairs(links(c)) do
    if news(c, path) then return true end
  end
  return false
end

-- revive makes a given-up consumer idle again. It drops the dead letter that the consumer has left, if that is still
-- there. O(links).
local function revive(c)
  local letter = redis.call('HGET', P .. 'f:' .. c.id, 'letter')
  if letter then
    drop_letter(letter)
    redis.call('HDEL', P .. 'f:' .. c.id, 'letter')
  end
  c.state = 'idle'
  delivered(c)
  for path in pairs(links(c)) do redis.call('HDEL', P .. 'f:' .. c.id, 'past:' .. path) end
end

-- observed acts on a noted tail of a stream (spec.Observe), and says whether that changed the consumer. It
-- looks at other streams only if there is work on this one: the call that raises their tails wakes the consumer for
-- them.
local function observed(c, path)
  local has_work = false
  if c.hidden == 0 then
    local rests = c.state == 'idle' or c.state == 'given_up'
    local acked = rests and acked_of(c, path)
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

-- put_profile gives a consumer the present profile of its subscription.
local function put_profile(c, profile)
  if profile == (c.profile or '') then return end
  c.profile = profile ~= '' and profile
  set_who(c)
end

-- failed books a failed attempt. If it was the last attempt of the profile, the consumer is given up. Without delays in
-- the profile, the consumer is given up if the attempt began after failures had gone on for long enough. A lasting
-- profile never gives the consumer up. A nudged attempt does not count: the next one is due as it was before. Otherwise
-- the next one is due after its delay by the schedule (schedule.lua), or after what Retry-After asks for, if that is
-- longer. The last attempt of a push does not come here: the dispatcher makes it dead (judgeLast).
-- from is when the failure begins to count, which may lie ahead; nil is now.
local function failed(c, retry_after, retired, why, profile, span, from)
  local began_at, wait = c.due - patience(c), math.min(retry_after, FSM.RETRY_AFTER_MAX)
  local nudged, probed = nudged_of(c)
  put_profile(c, profile)
  if nudged > 0 then set_nudged(c, 0) end
  local lasting, delays, last = false
  if c.profile then
    local _
    _, lasting, delays = profile_of(c)
    if #delays == 0 then delays = nil end
  end
  from = from or now()
  if c.failing == 0 or c.failing > from then c.failing = from end
  c.sent = 0
  redis.call('HSET', P .. 'f:' .. c.id, 'error', why)
  if c.attempt == 1 and c.profile then redis.call('HSET', P .. 'f:' .. c.id, 'span', int(c.epoch) .. ' ' .. span) end
  if delays then
    last = c.attempt > #delays
  else
    last = began_at >= c.failing + c.uncounted + GC
  end
  if retired then
    c.retired, c.due = 1, 0
  elseif began_at < nudged then
    c.attempt, c.due = c.attempt - 1, now() + math.max(nudged - now(), wait)
    if not probed then set_nudged(c, now()) end
  elseif last and not lasting then
    give_up(c)
  else
    c.due = now() + math.max(delays and delay_of(delays, c.attempt) or retry_delay(c.attempt), wait)
  end
end

-- steps_aside says whether the events of a failed attempt step aside (spec.stepsAside).
local function steps_aside(c, profile, to, within)
  if not string.find(profile, '^%d+,2') or c.owner then return false end
  local l = links(c)[c.primary]
  to = behind(c, to, within)
  return l and moves(l, within) and moves(l, to) and not after(to, l.tail) and
    redis.call('SCARD', P .. 'x:' .. c.id) < FSM.MAX_ASIDES and
    tonumber(redis.call('HGET', P .. 'asides', c.gen) or '0') < FSM.MAX_SUBSCRIPTION_ASIDES
end

-- step_aside makes the aside that goes on with a failed attempt, and returns its id. The consumer goes on behind its
-- events (spec.stepAside).
local function step_aside(c, retry_after, why, profile, span, to, within)
  local aside = create(c.sub, c.gen, aside_id(c.id, int(c.epoch)), c.primary, links(c)[c.primary].acked, c.epoch,
    c.profile, { owner = c.id, born = c.born, ends = within })
  aside.state = 'waking'
  begin(aside)
  aside.attempt, aside.due, aside.failing, aside.uncounted = c.attempt, c.due, c.failing, c.uncounted
  local nudged, probed = nudged_of(c)
  if nudged > 0 then set_nudged(aside, nudged, probed) end
  failed(aside, retry_after, false, why, profile, span)
  redis.call('HSET', P .. 'f:' .. aside.id, 'span', int(aside.epoch) .. ' ' .. span)
  save(aside)
  put_profile(c, profile)
  delivered(c)
  ack(c, c.primary, behind(c, to, within))
  finished(c)
  return aside.id
end
