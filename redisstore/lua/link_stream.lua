-- Links a stream to subscriptions. With the last batch of them, it also moves the stream's record.
-- ARGV[5] path  ARGV[6] the stamp that was read before the tail was asked for  ARGV[7] the tail.
-- ARGV[8] version of the list of subscriptions, read after that.
-- ARGV[9] how long until the record is due for a look, ms  ARGV[10] 1 if no other batch follows.
-- ARGV[11] the number that code 3 has returned, "" at first  ARGV[12] n  then n times subscription, generation,
-- consumer, acked, profile.
-- Returns { code, record, outcome, number }.
-- Code 1: done. The number is how many consumers were created.
-- Code 0: nothing was changed, because the record has another stamp or is gone.
-- Code 2: nothing was changed, because the existing consumers have more links than one script may read. The number is
-- how many of the batch may go together.
-- Code 3: nothing was linked, because some subscription was deleted after that version of the list. Read the list
-- again. Then call with the number, which is a text, for the part of the batch that is still on the list.
-- An existing consumer keeps its offsets. A consumer of a deleted subscription is not made.
-- O(n + links that one script may read).
local path, stamp, tail, version = ARGV[A], tonumber(ARGV[A + 1]), ARGV[A + 2], tonumber(ARGV[A + 3])
local span, last, asked, n = tonumber(ARGV[A + 4]), ARGV[A + 5] == '1', ARGV[A + 6], tonumber(ARGV[A + 7])
local made = 0
local s = stream_of(path)
local again = s and s.nonce == NONCE
if not s or s.stamp ~= stamp and not again then
  -- An earlier run may have carried out the call, and its reply was lost.
  for i = 0, n - 1 do apart(function(id) repeated(load(id)) end, ARGV[A + 10 + 5 * i]) end
  return reply({ 0, stream_reply(path), outcome(), made })
end
if not again then
  local sum = 0
  for i = 0, n - 1 do
    sum = sum + size_of('HLEN', P .. 'l:' .. ARGV[A + 10 + 5 * i])
    if i > 0 and sum > LINKS_READ then return reply({ 2, stream_reply(path), outcome(), i }) end
  end
  -- The partition does not store which subscription was deleted: clients that create and delete many would fill it. A
  -- caller first asks here, and then finds a generation on the list. If its question still stands here after that, the
  -- subscription was not deleted meanwhile. Deletions of other subscriptions do not count, so the caller succeeds
  -- however many there are.
  if version < tonumber(redis.call('HGET', P .. 'meta', 'deleted') or '0') then
    local sure = true
    for i = 0, n - 1 do sure = sure and redis.call('SISMEMBER', P .. 'a:' .. ARGV[A + 9 + 5 * i], asked) == 1 end
    if not sure then
      for i = 0, n - 1 do
        local key = P .. 'a:' .. ARGV[A + 9 + 5 * i]
        redis.call('SADD', key, NONCE)
        redis.call('PEXPIRE', key, REPEATED)
      end
      return reply({ 3, stream_reply(path), outcome(), NONCE })
    end
  end
end
local function link(id, sub, gen, acked, profile)
  local c = load(id)
  if c and c.gen ~= gen then
    remove(c, 'subscription_deleted') -- left over from an earlier subscription of the same id
    c = nil
  end
  if not c and is_quarantined(id) then
    if redis.call('SISMEMBER', P .. 'b:' .. sub .. ':' .. gen, id) == 1 then return end
    erase(id) -- of an earlier generation
  end
  if not c and not again then
    made = made + 1
    c = create(sub, gen, id, path, begin_at(path, acked), floor(), profile ~= '' and profile)
  end
  if c then
    note_tail(path, tail)
    if not repeated(c) then
      observed(c, path)
      save(c)
    end
  end
end
for i = 0, n - 1 do
  local at = A + 8 + 5 * i
  local sub, gen, id, acked, profile = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  if not is_dead(gen) then apart(link, id, sub, gen, acked, profile) end
end
if not again then
  if last then
    if s.noted == 0 then s.noted = version end
    s.awaited, s.linked, s.tail, s.till, s.stamp = false, version, tail, micros + span * 1000, next_stamp()
  end
  s.nonce = NONCE
  put_stream(path, s)
end
return reply({ 1, stream_reply(path), outcome(), made })
