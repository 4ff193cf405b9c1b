-- Consumers that begin again, because they go back or their stream was made anew.

-- go_back leads a link of a consumer back to an offset. What a worker of the present wake acks does not count any more.
local function go_back(c, path, to)
  set_acked(c, path, to)
  c.since = c.epoch
  redis.call('HSET', P .. 'f:' .. c.id, 'since:' .. path, int(c.epoch))
end

-- begin_again ends the wake of a consumer that has gone back. It begins another wake if work is pending.
local function begin_again(c, cause)
  if c.state == 'given_up' then revive(c) end
  over(c, cause)
  rest_idle(c)
  came_idle(c)
  wake_if_pending(c)
end

-- start_over makes a consumer start over in streams that were made anew or deleted (spec.Restart). If its
-- primary was made anew, start_over replaces it by a new consumer, and returns that one. If its primary was deleted,
-- start_over removes it and returns nil. The argument was is the old tail of its primary. If it is nil, the tail counts
-- that count_restart has noted.
local function start_over(c, made_anew, was)
  if made_anew(c.primary) then
    local tail, ends = tail_of(c.primary), is_closed(c.primary)
    local cause = tail == '' and 'stream_deleted' or 'stream_recreated'
    leave_letters(c, cause, was or redis.call('HGET', P .. 's:' .. c.primary, 'was') or '')
    remove(c, cause)
    if tail == '' or c.owner then return nil end
    local anew = create(c.sub, c.gen, c.id, c.primary, '-1', c.epoch, c.profile)
    set_noted(c.primary, tail, ends)
    wake_if_pending(anew)
    save(anew)
    return anew
  end
  local fenced_off = false
  for path, l in pairs(links(c)) do
    if made_anew(path) then
      go_back(c, path, '-1')
      if c.state == 'given_up' then redis.call('HDEL', P .. 'f:' .. c.id, 'past:' .. path) end
      fenced_off = fenced_off or l.tail ~= ''
    end
  end
  if fenced_off then begin_again(c, 'restarted') end
  save(c)
  return c
end

-- load returns a consumer as it is now, or nil if there is none. If one of its streams was made anew or deleted since
-- its last visit, it starts over now.
local function load(id)
  local c = record(id)
  if not c or restarts() == 0 then return c end
  local seen = visited(id)
  if seen == restarts() or is_dead(c.gen) then return c end
  c = start_over(c, function(path) return is_former(path, seen) end)
  if c then redis.call('HSET', P .. 'f:' .. id, 'restarts', int(restarts())) end
  return c
end

-- few returns the consumers of a stream, if one script can handle all of them.
local function few(path)
  if redis.call('SCARD', P .. 'w:' .. path) > 50 then return nil end
  local ids, sum = members(P .. 'w:' .. path), 0
  for _, id in ipairs(ids) do sum = sum + size_of('HLEN', P .. 'l:' .. id) + size_of('SCARD', P .. 'x:' .. id) end
  return sum <= LINKS_READ and ids or nil
end

-- all_start_over makes the consumers of a stream whose tail was changed start over. If they are many, the first call
-- counts a restart. From then on every script follows that count, so acks and tail change together. Each call visits
-- some of them, and returns the next cursor.
local function all_start_over(path, cursor)
  local function see_to(id, made_anew)
    local c = load(id)
    if not c then return end
    if not is_dead(c.gen) then
      if made_anew then start_over(c, made_anew, old_tails[path]) end
    elseif c.primary == path and tail_of(path) == '' then
      remove(c, 'stream_deleted')
    end
  end
  if cursor == '0' then
    local ids = few(path)
    if ids then
      for _, id in ipairs(ids) do apart(see_to, id, function(p) return p == path end) end
      return '0'
    end
    count_restart(path)
  end
  return visit(P .. 'w:' .. path, cursor, see_to)
end
