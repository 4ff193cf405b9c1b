-- Counts the consumers of some subscriptions (fsm.Tally). It counts idle consumers without trouble by the size of their
-- set, the others one by one. Batches: call again with the returned cursor until it is "0", and add up. A walk goes
-- along each list by time, up to the last consumer that was on the list when its walk began. So a consumer that comes
-- later, or comes back, is not counted twice. A cursor is good on any server.
-- most: how many consumers to look at; a few more if they came in the same millisecond. Then follow sub, gen, … of the
-- consumers to count.
-- Returns { next cursor, { { which, consumers, asides, waking, live, given up, pending, failing, retired, hidden,
-- since, error, woke }, … } }. `which` is the number of the subscription among the arguments, from 1. `since` is since
-- when the consumer that has failed longest fails, in ms, and `error` is its last error; 0 and "" if none fails. `woke`
-- is when the oldest wake began, in ms, 0 if there is none. Subscriptions with nothing to add are left out.
-- O(subscriptions + consumers looked at).
local cursor, most = unpack(ARGV, A, A + 1)
local COUNTED_LISTS = { 'waiting', 'aside', 'retired', 'live', 'given_up', 'hidden', 'failing' }
-- COUNTED is what a consumer on a list counts as. Failing and retired consumers may be hidden: that takes a look at the
-- record.
local COUNTED = {
  waiting = { 'waking', 'pending' }, aside = { 'waking', 'pending' }, retired = { 'waking' },
  live = { 'live', 'pending' }, given_up = { 'given_up' }, hidden = { 'hidden' },
}

local at, from, to = string.match(cursor, '^(%d+) ?(%S*) ?(%S*)$')
at = tonumber(at)
local left = tonumber(most)
local tallies = {}
local has_asides = redis.call('EXISTS', P .. 'asides') == 1
for i = A + 2, #ARGV, 2 do
  local sub, gen = ARGV[i], ARGV[i + 1]
  if not is_dead(gen) then
    local t = {
      which = (i - A) / 2, gen = gen, consumers = 0, asides = 0, waking = 0, live = 0, given_up = 0,
      pending = 0, failing = 0, retired = 0, hidden = 0, since = '0', why = '', woke = 0,
    }
    tallies[sub] = t
    if at == 0 then
      for _, n in ipairs(has_asides and redis.call('HMGET', P .. 'asides', gen, gen .. ':replays') or {}) do
        t.asides = t.asides + tonumber(n or '0')
      end
      t.consumers = redis.call('SCARD', P .. 'b:' .. sub .. ':' .. gen) - t.asides
      t.some = t.consumers + t.asides > 0
    end
  end
end

-- fails counts a consumer that is on the list of failing consumers since a time. It leaves out retired consumers that
-- are waking, because they are on the list of the retired. The first one has failed for longest. What
-- lies ahead has not failed (fsm.Consumer.AsOf).
local function fails(t, id, since)
  local c = peek(id)
  if not c or c.gen ~= t.gen or c.hidden > 0 then return end
  t.some = true
  local has_failed = tonumber(since) <= now()
  if c.retired == 0 then
    if has_failed then t.failing = t.failing + 1 end
  elseif c.state ~= 'waking' then
    t.retired = t.retired + 1
  end
  if has_failed and t.since == '0' then
    t.since, t.why = int(tonumber(since)), redis.call('HGET', P .. 'f:' .. id, 'error') or ''
  end
end

local function count(list, id, since)
  local t, as = tallies[string.match(id, '^[^:]*')], COUNTED[list]
  if not t then return end
  if not as then return fails(t, id, since) end
  local c = peek(id)
  if not c or c.gen ~= t.gen then return end
  if as[1] == 'waking' and c.woke > 0 and (t.woke == 0 or c.woke < t.woke) then t.woke = c.woke end
  for _, field in ipairs(as) do t[field], t.some = t[field] + 1, true end
  if list == 'retired' and c.hidden == 0 then t.retired = t.retired + 1 end
end

at = math.max(at, 1)
while at <= #COUNTED_LISTS and left > 0 do
  local list = P .. COUNTED_LISTS[at]
  if not to or to == '' then from, to = '-inf', redis.call('ZRANGE', list, -1, -1, 'WITHSCORES')[2] end
  local found = to and redis.call('ZRANGEBYSCORE', list, from, to, 'WITHSCORES', 'LIMIT', 0, left + 1) or {}
  local n = #found / 2
  local more = n > left
  if more then -- a call ends between two milliseconds, so that the next one can go on behind it
    local last = found[2 * n]
    while n > 0 and found[2 * n] == last do n = n - 1 end
    if n == 0 then
      found = redis.call('ZRANGEBYSCORE', list, last, last, 'WITHSCORES')
      n = #found / 2
    end
    from = '(' .. found[2 * n]
  end
  for i = 1, n do
    local list, since = COUNTED_LISTS[at], found[2 * i]
    look(function(id) count(list, id, since) end, found[2 * i - 1])
  end
  if more then break end
  at, from, to, left = at + 1, nil, nil, left - n
end

local counted = {}
for _, t in pairs(tallies) do
  if t.some then
    counted[#counted + 1] = {
      t.which, t.consumers, t.asides, t.waking, t.live, t.given_up, t.pending, t.failing, t.retired, t.hidden,
      t.since, t.why, int(t.woke),
    }
  end
end
return reply(at > #COUNTED_LISTS and '0' or to and at .. ' ' .. from .. ' ' .. to or tostring(at), counted)
