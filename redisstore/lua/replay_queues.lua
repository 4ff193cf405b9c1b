-- Lists the consumers that have something to replay, by id.
-- ARGV[9] subscription, "" for all  ARGV[10] the id behind which the list begins, "" for its beginning.
-- ARGV[11] how many at most.
-- Returns a list of { consumer, subscription, stream, waiting, done, number, span, at, to, attempt, failing, error }
-- (fsm.ReplayQueue). `number` and the items behind it are of the replay under way, and are 0 or "" if there is none.
-- `span` is 1 if it replays a span. `failing` is since when it fails, in ms. O(consumers returned).
local sub, behind = ARGV[A], ARGV[A + 1]
local from = behind ~= '' and '(' .. behind or sub ~= '' and '[' .. sub .. ':' or '-'
local list = {}
local function show(id)
  local c = redis.call('HMGET', P .. 'c:' .. id, 'sub', 'primary', 'replaying', 'replayed')
  if not c[1] or not c[2] then return end
  local n = c[3] or '0'
  local aside = redis.call('HMGET', P .. 'c:' .. id .. ':' .. n, 'ends', 'attempt', 'failing', 'error')
  list[#list + 1] = {
    id, c[1], c[2], redis.call('ZCARD', P .. 'r:' .. id), c[4] or '0', n,
    redis.call('HEXISTS', P .. 'rs:' .. id, n), redis.call('HGET', P .. 'l:' .. id .. ':' .. n, c[2]) or '', aside[1] or '',
    aside[2] or '0', aside[3] or '0', aside[3] and aside[3] ~= '0' and aside[4] or '',
  }
end
for _, id in ipairs(redis.call('ZRANGEBYLEX', P .. 'replays', from, sub ~= '' and '(' .. sub .. ';' or '+', 'LIMIT', 0, ARGV[A + 2])) do
  look(show, id)
end
return reply(list)
