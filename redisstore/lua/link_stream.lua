-- Links a stream to subscriptions. With the last batch of them, it also moves the stream's record.
-- stamp: as it was read before the tail was asked for  version: of the list of subscriptions, read after that.
-- span: how long until the record is due for a look, ms  last: 1 if no other batch follows.
-- asked: the number that code 3 has returned, "" at first. Behind n follow n times sub, gen, consumer, acked, profile.
-- Returns { code, record, number }.
-- Code 1: done. The number is how many consumers were created.
-- Code 0: nothing was changed, because the record has another stamp or is gone.
-- Code 2: nothing was changed, because the existing consumers have more links than one script may read. The number is
-- how many of the batch may go together.
-- Code 3: nothing was linked, because some subscription was deleted after that version of the list. Read the list
-- again. Then call with the number, which is a text, for the part of the batch that is still on the list.
-- An existing consumer keeps its offsets. A consumer of a deleted subscription is not made.
-- O(n + links that one script may read).
local path, stamp, tail, version, span, last, asked, n = unpack(ARGV, A, A + 7)
stamp, version = tonumber(stamp), tonumber(version)
local made, all = 0, {}
for at = A + 8, A + 3 + 5 * n, 5 do
  local sub, gen, consumer, acked, profile = unpack(ARGV, at, at + 4)
  all[#all + 1] = { sub = sub, gen = gen, consumer = consumer, acked = acked, profile = profile }
end
local s = stream_of(path)
local again = s and s.nonce == NONCE
if not s or s.stamp ~= stamp and not again then
  -- An earlier run may have carried out the call, and its reply was lost.
  for _, new in ipairs(all) do apart(function(id) repeated(load(id)) end, new.consumer) end
  return reply(0, stream_reply(path), made)
end
if not again then
  local sum = 0
  for i, new in ipairs(all) do
    sum = sum + size_of('HLEN', P .. 'l:' .. new.consumer)
    if i > 1 and sum > LINKS_READ then return reply(2, stream_reply(path), i - 1) end
  end
  -- The partition does not store which subscription was deleted: clients that create and delete many would fill it. A
  -- caller first asks here, and then finds a generation on the list. If its question still stands here after that, the
  -- subscription was not deleted meanwhile. Deletions of other subscriptions do not count, so the caller succeeds
  -- however many there are.
  if version < tonumber(redis.call('HGET', P .. 'meta', 'deleted') or '0') then
    local sure = true
    for _, new in ipairs(all) do sure = sure and redis.call('SISMEMBER', P .. 'a:' .. new.gen, asked) == 1 end
    if not sure then
      for _, new in ipairs(all) do
        local key = P .. 'a:' .. new.gen
        redis.call('SADD', key, NONCE)
        redis.call('PEXPIRE', key, REPEATED)
      end
      return reply(3, stream_reply(path), NONCE)
    end
  end
end
local function link(id, new)
  local c = load(id)
  if c and c.gen ~= new.gen then
    remove(c, 'subscription_deleted') -- left over from an earlier subscription of the same id
    c = nil
  end
  if not c and is_quarantined(id) then
    if redis.call('SISMEMBER', P .. 'b:' .. new.sub .. ':' .. new.gen, id) == 1 then return end
    erase(id) -- of an earlier generation
  end
  if not c and not again then
    made = made + 1
    c = create(new.sub, new.gen, id, path, begin_at(path, new.acked), floor(), new.profile ~= '' and new.profile)
  end
  if c then
    note_tail(path, tail)
    if not repeated(c) then
      observed(c, path)
      save(c)
    end
  end
end
for _, new in ipairs(all) do
  if not is_dead(new.gen) then apart(link, new.consumer, new) end
end
if not again then
  if last == '1' then
    if s.noted == 0 then s.noted = version end
    s.awaited, s.linked, s.tail, s.till, s.stamp = false, version, tail, micros() + span * 1000, next_stamp()
  end
  s.nonce = NONCE
  put_stream(path, s)
end
return reply(1, stream_reply(path), made)
