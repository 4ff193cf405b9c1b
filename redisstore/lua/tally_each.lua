-- Counts the consumers of some subscriptions one by one (fsm.Tally), however many others there are. If it looks at
-- fewer than a subscription has, it returns all its consumers and asides, and at least so many of the rest.
-- The arguments are which, sub, gen, most, … most: how many of its consumers to look at.
-- Returns { { which, consumers, asides, waking, live, given up, pending, failing, retired, hidden, since, error, woke
-- }, … }, as tally.lua does, and then 1 if it has looked at fewer than there are. Subscriptions with nothing to add are
-- left out. O(subscriptions + consumers looked at).
local has_asides = redis.call('EXISTS', P .. 'asides') == 1
local any = redis.call('EXISTS', P .. 'quarantined') == 1

-- count counts a consumer as spec.Count does.
local function count(id, t, gen)
  if any and is_quarantined(id) then return end
  local c = peek(id)
  if not c or c.gen ~= gen then return end
  if c.state ~= 'idle' then t[c.state] = t[c.state] + 1 end
  if c.state == 'live' or c.state == 'waking' and c.retired == 0 then t.pending = t.pending + 1 end
  if c.state == 'waking' and c.woke > 0 and (t.woke == 0 or c.woke < t.woke) then t.woke = c.woke end
  if c.hidden > 0 then
    t.hidden = t.hidden + 1
    return
  end
  local since = c.failing
  local fails = since > 0 and since <= now()
  if c.retired == 1 then
    t.retired = t.retired + 1
  elseif fails then
    t.failing = t.failing + 1
  end
  -- Of several that fail since the same time, the first by id tells its error, as on the list of the failing.
  if fails and (t.since == 0 or since < t.since or since == t.since and id < t.id) then
    t.since, t.why, t.id = since, redis.call('HGET', P .. 'f:' .. id, 'error') or '', id
  end
end

local counted = {}
for i = A, #ARGV, 4 do
  local which, sub, gen, most = unpack(ARGV, i, i + 3)
  local set = P .. 'b:' .. sub .. ':' .. gen
  most = tonumber(most)
  local all = not is_dead(gen) and redis.call('SCARD', set) or 0
  if all > 0 then
    local asides, ids = 0, {}
    for _, n in ipairs(has_asides and redis.call('HMGET', P .. 'asides', gen, gen .. ':replays') or {}) do
      asides = asides + tonumber(n or '0')
    end
    if most >= all then
      ids = redis.call('SMEMBERS', set)
    elseif most > 0 then
      ids = redis.call('SSCAN', set, '0', 'COUNT', int(most))[2]
    end
    local t = {
      waking = 0, live = 0, given_up = 0, pending = 0, failing = 0, retired = 0, hidden = 0,
      since = 0, why = '', woke = 0,
    }
    local looked = math.min(#ids, most)
    for n = 1, looked do look(count, ids[n], t, gen) end
    counted[#counted + 1] = {
      tonumber(which), all - asides, asides, t.waking, t.live, t.given_up, t.pending, t.failing, t.retired, t.hidden,
      int(t.since), t.why, int(t.woke), looked < all and 1 or 0,
    }
  end
end
return reply(counted)
