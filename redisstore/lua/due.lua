-- Acts on deadlines that have passed.
-- most: how many consumers at most  open: fsm.Timing.Open, ms.
-- Returns { how many were acted on, 1 if it stopped early because it had read many links }. The same call
-- again returns the same attempts. O(log n + consumers due + links that one script may read).
local most, open = unpack(ARGV, A)
local acted, stopped = 0, 0

-- is_away is spec.Env.Away.
local function is_away(c)
  local owner = c.owner and peek(c.owner)
  return owner and owner.hidden > 0
end

-- If an earlier run of this call has handed out attempts, its reply was lost. They are handed out again while they are
-- out.
local before = redis.call('GET', P .. 'n:' .. NONCE)
if before then
  for id, handed in string.gmatch(before, '(%S+) (%d+)') do
    acted = acted + 1
    apart(function()
      local c = record(id)
      if c and attempt_out(c, handed) and not is_dead(c.gen) then ask_for_attempt(c) end
    end, id)
  end
  return reply(acted, 0)
end

-- request_ends is when the request of the attempt that is out must have ended (spec.requestEnds).
local function request_ends(c)
  local attempt = c.profile and profile_of(c) or 0
  return attempt > 0 and c.due or c.due - WAKING + open
end

local function act(id)
  local c = load(id)
  if not c then
    redis.call('ZREM', P .. 'due', id)
  elseif is_dead(c.gen) then
    remove(c, 'subscription_deleted')
  elseif begun[id] then
    -- The function load has begun this wake just now. The deadline that has passed was of another wake.
  elseif c.hidden > 0 then
    -- Only an answer of upstream ends the hiding (hide.lua): the watcher may have been unable to ask.
    c.due = now() + GRACE
    save(c)
    tell('hidden', c.primary)
  elseif c.state == 'waking' and c.retired == 0 and is_away(c) then
    c.due = now() + math.min(GRACE, FSM.RETRY_CAP)
    save(c)
  elseif c.state == 'waking' and c.retired == 0 then
    take_back(c)
    if c.sent == 1 then
      uncount(c, c.due)
      failed(c, 0, false, 'no answer in time', c.profile or '', '0', math.max(now(), request_ends(c)))
    else
      hand_out(c)
    end
    save(c)
  elseif c.state == 'live' then
    over(c, 'silent')
    c.state = 'idle'
    came_idle(c)
    wake_if_pending(c)
    save(c)
  else
    c.due = 0
    save(c)
  end
end

local ids = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', now(), 'LIMIT', 0, most)
for _, id in ipairs(ids) do
  if not can_read(id) then
    stopped = 1
    break
  end
  acted = acted + 1
  apart(act, id)
end
local out = {}
for _, item in ipairs(outcome) do
  if item[1] == 'delivery' then out[#out + 1] = item[2] .. ' ' .. int(item[13]) end
end
if #out > 0 then
  redis.call('SET', P .. 'n:' .. NONCE, table.concat(out, ' '), 'PX', REPEATED)
end
return reply(acted, stopped)
