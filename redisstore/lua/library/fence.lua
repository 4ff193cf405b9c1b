-- How a partition finds that it may have lost its latest changes, and keeps epochs from being used twice
-- (fsm/spec/fence.go).

-- run_id is what the server has told of itself. It lasts from call to call: the process of a server has one for its
-- whole life, and keeps no library of another process.
local run_id

-- incarnation is the server's run_id, which changes with a restart or a promotion. It is "-" if the server does not
-- tell.
local function incarnation()
  if INCARNATION ~= '' and INCARNATION ~= '?' then return INCARNATION end
  if not run_id then
    local info = redis.call('INFO', 'server')
    local _, at = string.find(info, 'run_id:', 1, true) -- a pattern would be tried at every byte
    run_id = at and string.match(info, '^%w+', at + 1) or '-'
  end
  return run_id
end

-- ABANDONED, ms: if no replica has taken a lease for this long, no replica is left that remembers the watermark. It is
-- longer than a lease and a restart take. A caller that remembers nothing has no other sign.
local ABANDONED = 60000

-- meta reads the fields of the partition's meta that most calls need.
local function meta()
  if not meta_read then meta_read = redis.call('HMGET', P .. 'meta', 'life', 'base', 'mark', 'restarts', 'dropping') end
  return meta_read
end

-- fence returns the base that new epochs lie above (spec.Fence). It begins an incarnation if the partition may have
-- lost its latest changes. There are three signs. The server has another incarnation, or the watermark is lower than
-- what the caller has seen. Or no replica is left that has seen the watermark. Then `unresumed` is that base, until the
-- owner has made up for resumptions that may be lost.
local function fence()
  if fenced then return fenced end
  local recorded, base = meta()[1], tonumber(meta()[2] or '0')
  local at = SEEN == 0 and tonumber(redis.call('HGET', P .. 'meta', 'at'))
  local seen = math.max(mark, SEEN)
  mark = tonumber(meta()[3] or '0')
  lost = lost or SEEN > mark or at and now() - at > ABANDONED
  if lost or incarnation() ~= recorded then
    if lost or recorded or LASTING then base = math.max(base + FSM.LEAST_EPOCHS, now() * FSM.EPOCHS) end
    -- The other callers have seen less than this one, or little more. They must not all find the same loss.
    mark = lost and math.max(mark, seen) + 1000000 or math.max(mark, 1)
    redis.call('HSET', P .. 'meta', 'life', incarnation(), 'base', base, 'mark', mark, 'at', now())
    if lost or recorded then redis.call('HSET', P .. 'meta', 'unresumed', base) end
  end
  fenced = base
  return base
end

-- watermark returns what the caller must remember. It rises with each call that has touched something.
local function watermark()
  if touched then
    mark = redis.call('HINCRBY', P .. 'meta', 'mark', '1')
    if mark <= SEEN then
      lost, fenced, meta_read = true, nil, nil
      fence()
    end
  end
  return mark
end
