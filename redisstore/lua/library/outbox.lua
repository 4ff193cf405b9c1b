-- Events that were handed over (fsm/spec/outbox.go).

-- place_in_stream returns where a consumer stands in its stream (fsm.Consumer.Place).
local function place_in_stream(c) return int(c.born) .. ' ' .. (c.acked or '') end

-- events_of returns the list of the events with a status.
local function events_of(status)
  local is_open = status == 'pending' or status == 'delivering'
  return P .. 'events:' .. (is_open and 'open' or status)
end

-- begins_at returns from when on an event is delivered (fsm.OutboxEvent.Begins).
local function begins_at(placed, begins)
  return math.max(tonumber(string.sub(placed, 1, 13)), tonumber(begins or '0'))
end

-- is_removing says whether a stream of events is being removed: no event in it is new.
local function is_removing(path) return tonumber(redis.call('ZSCORE', P .. 'event_streams', path) or '0') < 0 end

-- forget_expired drops an event that was delivered or cancelled long enough ago. It says whether it did.
local function forget_expired(id)
  local till = redis.call('ZSCORE', P .. 'expire', id)
  if not till or tonumber(till) > now() then return false end
  local key = P .. 'event:' .. id
  local status, placed, delivered_at, begins, path =
    unpack(redis.call('HMGET', key, 'status', 'placed', 'delivered', 'deliver_at', 'stream'))
  redis.call('ZREM', P .. 'expire', id)
  redis.call('DEL', key)
  if not placed then return true end
  redis.call('ZINCRBY', P .. 'event_streams', -1, path)
  redis.call('ZREM', events_of(status), placed)
  local left = begins_at(placed, begins) + FSM.OUTBOX_RETENTION - now()
  if left > 0 then
    redis.call('HSET', key, 'status', 'expired', 'placed', placed,
      'delivered', delivered_at, 'deliver_at', begins or '0')
    redis.call('PEXPIRE', key, int(math.max(left, FSM.OUTBOX_RETENTION)))
  end
  return true
end

-- count_event counts, in the present hour, what has become of an event.
local function count_event(what, provider)
  local key = P .. 'hour:' .. int(math.floor(now() / 3600000))
  local counts = redis.call('HLEN', key)
  if counts >= FSM.MAX_OUTBOX_COUNTS and redis.call('HEXISTS', key, what .. ' ' .. provider) == 0 then
    provider = '(other)'
  end
  redis.call('HINCRBY', key, what .. ' ' .. provider, 1)
  if counts == 0 then redis.call('PEXPIRE', key, FSM.OUTBOX_COUNTED) end
end

-- event_bucket is fsm.TimeBucket.
local function event_bucket(millis)
  local doubled = 0
  millis = math.max(millis, 0)
  while millis >= 32 do
    doubled, millis = doubled + 1, math.floor(millis / 2)
  end
  return doubled * 16 + millis
end

-- keep_event keeps an event that was handed over. It lies in its stream behind the place of its consumer.
local function keep_event(id, event, placed, provider, keep, begins, path, consumer, place)
  redis.call('DEL', P .. 'event:' .. id)
  redis.call('HSET', P .. 'event:' .. id, 'event', event, 'placed', placed, 'provider', provider, 'keep', keep,
    'stream', path, 'status', 'pending', 'attempts', '0', 'consumer', consumer, 'at', place, 'last', '0',
    'delivered', '0', 'error', '', 'code', '0')
  if begins ~= '0' then redis.call('HSET', P .. 'event:' .. id, 'deliver_at', begins) end
  redis.call('ZADD', P .. 'events:open', 0, placed)
  redis.call('ZINCRBY', P .. 'event_streams', 1, path)
  count_event('handed_over', provider)
end

-- event_status returns the present status of an event that is not over (fsm.OutboxRecord.State).
local function event_status(status, by, at, delivered_at)
  if status ~= 'pending' and status ~= 'delivering' then return status end
  if by == '' then return 'pending' end
  local c = record(by)
  local place = c and place_in_stream(c)
  if not c or string.match(at, '^%S*') ~= string.match(place, '^%S*') then
    return delivered_at == '0' and 'dead_letter' or 'delivered'
  end
  if status == 'pending' or c.state ~= 'waking' or place ~= at then return 'pending' end
  return c.sent == 1 and 'delivering' or c.attempt > 0 and 'retrying' or 'pending'
end

-- expire_event has an event go once its time is over.
local function expire_event(id)
  local keep = redis.call('HGET', P .. 'event:' .. id, 'keep')
  redis.call('ZADD', P .. 'expire', int(now() + tonumber(keep)), id)
end

-- event_is gives an event another status.
local function event_is(id, was, status)
  local key, from, to = P .. 'event:' .. id, events_of(was), events_of(status)
  redis.call('HSET', key, 'status', status)
  if from == to then return end
  local placed, provider, delivered_at, begins =
    unpack(redis.call('HMGET', key, 'placed', 'provider', 'delivered', 'deliver_at'))
  if not placed then return end
  redis.call('ZREM', from, placed)
  redis.call('ZADD', to, 0, placed)
  if status == 'delivering' or status == 'delivered' and delivered_at ~= '0' then return end
  count_event(status, provider)
  if status == 'delivered' then count_event('t' .. event_bucket(now() - begins_at(placed, begins)), provider) end
end

-- tried returns the last attempts of an event with one more.
local function tried(tries, code, why)
  tries = (tries or '') .. int(now()) .. ' ' .. code .. ' ' .. string.gsub(why, '\n', ' ') .. '\n'
  local _, n = string.gsub(tries, '\n', '')
  return n > FSM.MAX_OUTBOX_TRIES and string.match(tries, '\n(.*)$') or tries
end

-- event_failed notes why an attempt to send an event has failed, and the consumer that brings the event from now on.
local function event_failed(id, by, attempts, why, code)
  local key = P .. 'event:' .. id
  local status, tries = unpack(redis.call('HMGET', key, 'status', 'tries'))
  if status ~= 'delivering' then return end
  redis.call('HSET', key, 'consumer', by, 'attempts', int(attempts), 'last', int(now()),
    'error', why, 'code', code, 'tries', tried(tries, code, why))
end

-- event_over notes that an event is delivered, or dead.
local function event_over(id, attempts, dead, why, code)
  local key = P .. 'event:' .. id
  local status, delivered_at, tries = unpack(redis.call('HMGET', key, 'status', 'delivered', 'tries'))
  if status ~= 'delivering' then return end
  redis.call('HSET', key, 'attempts', int(attempts), 'last', int(now()),
    'error', why, 'code', code, 'tries', tried(tries, code, why))
  if dead then -- a replay of what was delivered may be
    event_is(id, status, delivered_at == '0' and 'dead_letter' or 'delivered')
  else
    event_is(id, status, 'delivered')
    redis.call('HSET', key, 'delivered', int(now()))
    expire_event(id)
  end
end
