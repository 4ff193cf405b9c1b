-- Lists the consumers that have something to replay, by id.
-- sub: "" for all  behind: the id behind which the list begins, "" for its beginning  most: how many at most.
-- Returns a list of { consumer, subscription, stream, waiting, done, number, span, at, to, attempt, failing, error }
-- (fsm.ReplayQueue). `number` and the items behind it are of the replay under way, and are 0 or "" if there is none.
-- `span` is 1 if it replays a span. `failing` is since when it fails, in ms. O(consumers returned).
local sub, behind, most = unpack(ARGV, A)
local from = behind ~= '' and '(' .. behind or sub ~= '' and '[' .. sub .. ':' or '-'
local list = {}
local function show(id)
  local c, kept = peek(id), redis.call('HMGET', P .. 'f:' .. id, 'replaying', 'replayed')
  if not c then return end
  local n = kept[1] or '0'
  local aside = peek(aside_id(id, n)) or { attempt = 0, failing = 0 }
  list[#list + 1] = {
    id, c.sub, c.primary, redis.call('ZCARD', P .. 'r:' .. id), kept[2] or '0', n,
    redis.call('HEXISTS', P .. 'rs:' .. id, n), aside.acked or '', aside.ends or '', aside.attempt, int(aside.failing),
    aside.failing > 0 and redis.call('HGET', P .. 'f:' .. aside.id, 'error') or '',
  }
end
local to = sub ~= '' and '(' .. sub .. ';' or '+'
for _, id in ipairs(redis.call('ZRANGEBYLEX', P .. 'replays', from, to, 'LIMIT', 0, most)) do
  look(show, id)
end
return reply(list)
