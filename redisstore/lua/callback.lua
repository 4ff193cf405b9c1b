-- Judges a callback and, if nothing is wrong with it, processes it: claim, acks, subscribe, unsubscribe, done.
-- wake: "" if the callback names none  most: how many streams a consumer may have.
-- Then follow four lists, each a count and its items: tails (path, tail), acks (path, offset), subscribe (path, from),
-- unsubscribe (path).
-- Returns { code, path, wake id, streams }. The code is "" if the callback succeeded. The path is the stream
-- of an ack that lies beyond the tail. The wake id names the wake of the callback, "" if it is not known. A refused
-- callback has changed nothing. O(links of the consumer + items).
local consumer, gen, epoch, token_epoch, token_expired, wake, done, most = unpack(ARGV, A, A + 7)
epoch, token_epoch, most = tonumber(epoch), tonumber(token_epoch), tonumber(most)
local at = A + 8
local function list(width)
  local l = {}
  local n = tonumber(ARGV[at])
  at = at + 1
  for _ = 1, n do
    local item = {}
    for j = 1, width do item[j] = ARGV[at + j - 1] end
    at = at + width
    l[#l + 1] = item
  end
  return l
end
local tails, acks, subscribe, unsubscribe = list(2), list(2), list(2), list(1)
local of = ''
local function refuse(code, path) return reply(code, path or '', of, {}) end

local c = load(consumer)
if not c and is_quarantined(consumer) then return refuse('INTERNAL') end
-- No worker has a token of an aside, or of a consumer that was never woken. Such callbacks are for an earlier consumer
-- of the same id.
if not c or c.owner or c.gen ~= gen or c.hidden > 0 or c.wake == '' or c.state == 'given_up' or is_dead(c.gen) then
  return refuse('CONSUMER_GONE')
end
if token_expired == '1' then return refuse('TOKEN_EXPIRED') end
-- The Redis client may repeat a "done" whose reply was lost, even after later wakes have begun.
if repeated(c) or epoch ~= c.epoch and carried_out() then
  return reply('', '', '', add_links({}, c))
end
if epoch ~= c.epoch or token_epoch ~= c.epoch then return refuse('STALE_EPOCH') end
of = c.wake
if wake ~= '' and wake ~= c.wake then return refuse('ALREADY_CLAIMED') end

local asked = {}
local count = 0
for _, t in ipairs(tails) do
  -- A tail beyond the end of a closed stream is of the stream that came after it (spec.Raised).
  if not ends_before(t[1], t[2]) then asked[t[1]] = t[2] end
end
for path, l in pairs(links(c)) do
  count = count + 1
  if asked[path] and after(asked[path], l.tail) then l.tail = asked[path] end
end
for _, a in ipairs(acks) do
  local l = links(c)[a[1]]
  if l and moves(l, a[2]) and after(a[2], l.tail) then return refuse('INVALID_OFFSET', a[1]) end
end
local fresh, had = {}, count
for _, s in ipairs(subscribe) do
  if not links(c)[s[1]] and not fresh[s[1]] then
    fresh[s[1]] = true
    count = count + 1
  end
end
if count > most and count > had then return refuse('INVALID_REQUEST') end

for path in pairs(links(c)) do
  if asked[path] then note_tail(path, asked[path]) end
end
if wake ~= '' and c.state == 'waking' then
  go_live(c)
  delivered(c)
elseif c.state == 'live' then
  go_live(c)
end
for _, a in ipairs(acks) do ack(c, a[1], a[2]) end
local made, linked, offsets = {}, 0, {}
for _, s in ipairs(subscribe) do
  local path = s[1]
  if fresh[path] then
    fresh[path] = nil -- if a path is named twice, the first counts
    made[#made + 1] = path
    local from = begin_at(path, s[2])
    note_tail(path, asked[path] or '')
    if path == c.primary then
      c.acked = from
    else
      linked, offsets[#offsets + 1], offsets[#offsets + 2] = linked + 1, path, from
    end
    links(c)[path] = { acked = from, tail = tail_of(path) }
  end
end
if #made > 0 then watch(made, consumer) end
in_chunks(offsets, function(...) redis.call('HSET', P .. 'l:' .. consumer, ...) end)
local left = {}
for _, u in ipairs(unsubscribe) do
  local path = u[1]
  if links(c)[path] then
    links(c)[path] = nil
    if path == c.primary then c.acked = false else linked = linked - redis.call('HDEL', P .. 'l:' .. consumer, path) end
    if (c.since or 0) > 0 then redis.call('HDEL', P .. 'f:' .. consumer, 'since:' .. path) end
    -- The primary stays watched: its deletion ends the consumer.
    if path ~= c.primary then left[#left + 1] = path end
  end
end
unwatch(left, consumer)
c.more = c.more + linked
if linked ~= 0 then save(c) end -- with the links themselves
if next(links(c)) == nil then
  remove(c, 'unsubscribed')
  return reply('', '', of, {})
end
c.by = NONCE
local now_subscribed = add_links({}, c)
if c.state == 'idle' then
  wake_if_pending(c)
elseif done == '1' then
  came_idle(c)
  rest(c)
  note_call()
end
save(c)
return reply('', '', of, now_subscribed)
