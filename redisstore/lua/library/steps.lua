-- How a consumer goes from one state to another (fsm/spec/steps.go).

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
    c.due = now() + retry_delay(c.stalled - FSM.STALL_LIMIT + 1)
  else
    hand_out(c)
  end
end

-- rest_idle makes a consumer idle, and stops the failure clock.
local function rest_idle(c)
  if c.state == 'waking' and c.failing > 0 then
    uncount(c, c.parked)
    c.parked = 0
    c.uncounted = c.uncounted - math.max(0, now() - c.failing)
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
  for path in pairs(links(c)) do tell('idle', path) end
end

-- finished ends the wake of a consumer, if it is in one. It wakes the consumer again if work is pending, and saves it.
-- An aside without pending work is removed.
local function finished(c)
  if c.state == 'idle' then
    wake_if_pending(c)
  elseif c.owner and not pending(c) then
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
    local since = c.since == c.epoch and redis.call('HGET', P .. 'f:' .. c.id, 'since:' .. path)
    if since and tonumber(since) == c.epoch then return end
    set_acked(c, path, to)
    c.moved = 1
    return true
  end
end

-- behind returns the position behind what an attempt has brought (spec.behind).
local function behind(c, to, within)
  local ends = c.ends
  if ends and not after(to, ends) then return to end
  if ends then return after(within, ends) and ends or within end
  return c.again == c.epoch and within or to
end

-- note notes a tail that a consumer has found by reading. The tail of an aside is its end, and does not change.
local function note(c, path, tail)
  local l = links(c)[path]
  if l and not c.owner then
    note_tail(path, tail)
    l.tail = tail_of(path)
  end
end

local function delivered(c)
  if c.failing > 0 then redis.call('HDEL', P .. 'f:' .. c.id, 'error') end
  c.failing, c.uncounted, c.parked, c.retired = 0, 0, 0, 0
end

local function go_live(c)
  c.state, c.attempt, c.sent = 'live', 0, 0
  if c.hidden == 0 then c.due = now() + LIVENESS end
end

local function show(c)
  if c.state == 'waking' then
    uncount(c, c.hidden)
    take_back(c)
  end
  c.hidden = 0
  if c.state == 'waking' then
    c.sent, c.due = 0, now()
  elseif c.state == 'given_up' then
    c.due = 0
  elseif c.state == 'live' then
    c.due = now() + LIVENESS
  end
end

-- current gets the consumer of a reference, with load. If neither offsets nor tails matter, the caller passes record
-- instead. It returns nil if the consumer is gone or is not in that wake.
local function current(get, id, epoch, wake)
  local c = get(id)
  local in_wake = c and c.epoch == tonumber(epoch) and c.wake == wake
  if not in_wake or c.state == 'given_up' or is_dead(c.gen) then return nil end
  return c
end

-- attempt_out says whether the attempt of this number, handed, is out (spec.Out).
local function attempt_out(c, handed)
  return c.state == 'waking' and c.sent == 1 and c.handed == tonumber(handed) and c.hidden == 0
end
