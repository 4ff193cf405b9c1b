-- A wake and its attempts: how they begin, how long they last, and what the dispatcher gets of them.

local function pending(c)
  for _, l in pairs(links(c)) do
    if ahead(l.tail, l.acked) then return true end
  end
  return false
end

-- add_links adds the links of a consumer to a list: path, acked, tail, …
local function add_links(list, c)
  for path, l in pairs(links(c)) do
    list[#list + 1] = path
    list[#list + 1] = l.acked
    list[#list + 1] = l.tail
  end
  return list
end

-- new_wake_id returns the id of a wake that this call begins.
local function new_wake_id(c) return 'w_' .. string.sub(redis.sha1hex(NONCE .. c.id), 1, 20) end

local function begin(c)
  touched = true
  begun[c.id] = true
  local base = fence()
  -- A server that does not tell its incarnation may have lost what another caller has seen. So epochs follow its clock.
  if incarnation() == '-' then base = math.max(base, now() * FSM.EPOCHS) end
  c.epoch = math.max(c.epoch, base) + 1
  c.wake = new_wake_id(c)
  c.moved, c.attempt, c.handed, c.sent = 0, 0, 0, 0
  c.woke = now()
end

-- profiles are the profiles that were read, by their texts. They last from call to call. No text is read in two ways.
local profiles, profiles_read = {}, 0

-- profile_of returns what a consumer's profile says. It is how long an attempt may be out, whether failures never give
-- the consumer up, and the delays between attempts. Times are in ms (fsm.Profile).
local function profile_of(c)
  local p = profiles[c.profile]
  if not p then
    p = { delays = {} }
    for n in string.gmatch(c.profile, '%d+') do
      if not p.attempt then p.attempt = tonumber(n)
      elseif p.lasting == nil then p.lasting = tonumber(n) > 0
      else p.delays[#p.delays + 1] = tonumber(n) end
    end
    if p.lasting == nil then error('no number in field profile', 0) end
    if profiles_read >= 1000 then profiles, profiles_read = {}, 0 end
    profiles[c.profile], profiles_read = p, profiles_read + 1
  end
  return p.attempt, p.lasting, p.delays
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
  c.again = c.epoch
end

-- nudged_of returns fsm.Consumer.Nudged, 0 if it is zero. It also returns whether the consumer is fsm.Consumer.Probed.
local function nudged_of(c)
  local epoch, at, by = string.match(redis.call('HGET', P .. 'f:' .. c.id, 'nudged') or '', '^(%d+) (%d+)(.*)$')
  if tonumber(epoch) ~= c.epoch then return 0, false end
  return tonumber(at), by ~= ''
end

-- held_of returns fsm.Consumer.Held, "" if it is empty.
local function held_of(c)
  local held, own = redis.call('HGET', P .. 'f:' .. c.id, 'held') or '', int(c.epoch) .. ' ' .. int(c.handed) .. ' '
  return string.sub(held, 1, #own) == own and string.sub(held, #own + 1) or ''
end

-- stays says whether a reason to wait is one for which a delivery waits on (fsm.BlockReason.Stays).
local function stays(held) return held == 'rate' or held == 'consent' end

local function set_nudged(c, at, probed)
  if at > 0 then
    redis.call('HSET', P .. 'f:' .. c.id, 'nudged', int(c.epoch) .. ' ' .. int(at) .. (probed and ' probed' or ''))
  else
    redis.call('HDEL', P .. 'f:' .. c.id, 'nudged')
  end
end

-- waits says whether the next attempt of a consumer's wake is due later.
local function waits(c)
  return c.state == 'waking' and c.sent == 0 and c.retired == 0 and c.hidden == 0 and c.due > now()
end

local function ask_for_attempt(c)
  local born, attempt, span, nudged, replay = 0, 0, 0, c.attempt > 1 and now() < (nudged_of(c)) and 1 or 0, 0
  if c.profile then
    born, attempt, replay = c.born, profile_of(c), c.replay > 0 and 1 or 0
    if c.attempt > 1 then
      local epoch, n = string.match(redis.call('HGET', P .. 'f:' .. c.id, 'span') or '', '^(%d+) (%d+)$')
      if tonumber(epoch) == c.epoch then span = tonumber(n) end
    end
  end
  outcome[#outcome + 1] = add_links({
    'delivery', c.id, c.sub, c.gen, c.primary, c.epoch, c.wake, c.attempt, c.woke, born, attempt, span, c.handed,
    nudged, replay, c.owner or '',
  }, c)
end

-- uncount takes the time since a moment out of the failure clock, because no attempt could be made in it. The clock
-- does not hold what lies before the first failure.
local function uncount(c, since)
  if c.failing > 0 and since > 0 then c.uncounted = c.uncounted + math.max(0, now() - math.max(since, c.failing)) end
end

-- uncount_unattempted takes the time since the next attempt was due, or was parked, out of the failure clock.
local function uncount_unattempted(c)
  uncount(c, c.parked > 0 and c.parked or c.due)
  c.parked = 0
end

-- begin_anew replaces a wake that may be lost by a new one. A push is still the same delivery, so its attempts count
-- on.
local function begin_anew(c)
  local was, attempt, kept = c.epoch, c.attempt, redis.call('HGET', P .. 'f:' .. c.id, 'span') or ''
  begin(c)
  local epoch, span = string.match(kept, '^(%d+) (%d+)$')
  if not c.profile or attempt == 0 or tonumber(epoch) ~= was or tonumber(span) == 0 then return end
  c.attempt = attempt
  redis.call('HSET', P .. 'f:' .. c.id, 'span', int(c.epoch) .. ' ' .. span)
end

local function hand_out(c)
  uncount_unattempted(c)
  if c.epoch <= fence() then
    over(c, 'lost')
    begin_anew(c)
  end
  c.attempt, c.handed, c.sent, c.due = c.attempt + 1, c.handed + 1, 1, now() + patience(c)
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
