-- Replays of dead letters and spans (fsm/spec/replay.go), and the end of a letter. replay_letters.lua queues a letter.
-- replay_next makes an aside of it, which is pushed. Once all of it is delivered or dead again, deliver.lua calls
-- replay_over. What is dead again has left a new letter by then. The replay of a `given_up` letter revives its consumer
-- instead.

-- unqueue takes a number out of a consumer's replay queue, if it is in it.
local function unqueue(id, n)
  if redis.call('ZREM', P .. 'r:' .. id, n) == 0 then return end
  redis.call('HDEL', P .. 'rs:' .. id, n)
  if redis.call('EXISTS', P .. 'r:' .. id) == 0 then
    redis.call('ZREM', P .. 'replays', id)
    redis.call('HDEL', P .. 'f:' .. id, 'replayed')
  end
end

-- replays says whether a consumer can replay a dead letter. The events must be of the consumer's present stream
-- (spec.Replays). It says no to two kinds of letters. A letter whose class begins with stream_ was left by a
-- stream that is gone. The letter of a given-up consumer is not read again: its replay revives the consumer
-- (replay_letters.lua).
local function replays(c, letter)
  local class = letter and letter.k or ''
  if class == 'given_up' or string.sub(class, 1, 7) == 'stream_' then return false end
  return letter and letter.g == c.gen and (letter.o or 0) == c.born and after(letter.w or '', letter.f or '')
end

-- span_of returns from where to where a number in a consumer's queue replays. It is nil if the number's dead letter is
-- lost.
local function span_of(c, n)
  local span = redis.call('HGET', P .. 'rs:' .. c.id, n)
  if span then return string.match(span, '^(.*),(.*)$') end
  local letter = letter_of(n)
  if replays(c, letter) then return letter.f, letter.w end
end

-- replay_next begins the first replay in a consumer's queue, unless a replay is under way. For that, it makes an aside
-- (spec.StartReplay). It passes over what cannot be replayed, because the store has lost it. It begins nothing
-- of a stream that was made anew: once the consumer is loaded, its queue goes with it.
local function replay_next(c)
  if redis.call('HEXISTS', P .. 'f:' .. c.id, 'replaying') == 1 then return end
  if restarts() > 0 and is_former(c.primary, visited(c.id)) then return end
  while true do
    local n = redis.call('ZRANGE', P .. 'r:' .. c.id, 0, 0)[1]
    if not n then return end
    local from, to = span_of(c, n)
    if from then
      local aside = create(c.sub, c.gen, aside_id(c.id, n), c.primary, from, math.max(c.epoch, floor()), c.profile, {
        owner = c.id, born = c.born, ends = to, replay = tonumber(n),
      })
      redis.call('HSET', P .. 'f:' .. c.id, 'replaying', n)
      aside.state, aside.retired = 'waking', c.retired
      begin(aside)
      if c.retired == 0 then hand_out(aside) end
      return save(aside)
    end
    unqueue(c.id, n)
  end
end

-- queue puts a number into a consumer's replay queue.
local function queue(c, n)
  redis.call('ZADD', P .. 'r:' .. c.id, n, n)
  redis.call('ZADD', P .. 'replays', 0, c.id)
  replay_next(c)
end

-- replay_ends ends the replay under way, whether or not it is complete, and begins the next one. O(links of an aside).
local function replay_ends(c, n)
  local aside = record(aside_id(c.id, n))
  if aside then remove(aside) end
  redis.call('HDEL', P .. 'f:' .. c.id, 'replaying')
  unqueue(c.id, n)
  if not is_dead(c.gen) then replay_next(c) end
end

-- drop_letter drops a dead letter, and its replay with it. The letter need not be readable.
local function drop_letter(n)
  local text = redis.call('HGET', P .. 'letters', n)
  if not text then return end
  local letter, sub = letter_of(n), string.match(text, '^%d+ (%S+)')
  redis.call('HDEL', P .. 'letters', n)
  redis.call('ZREM', P .. 'dead', n)
  if sub then
    redis.call('ZREM', P .. 'dead:' .. sub, n)
    if redis.call('HINCRBY', P .. 'dead_counts', sub, -1) <= 0 then redis.call('HDEL', P .. 'dead_counts', sub) end
  end
  local id = letter and letter.c
  if not id or not redis.call('ZSCORE', P .. 'r:' .. id, n) then return end
  if redis.call('HGET', P .. 'f:' .. id, 'replaying') == n then
    local c = record(id)
    if c then replay_ends(c, n) else unqueue(id, n) end
  else
    unqueue(id, n)
  end
end

-- replay_over follows a complete replay. It drops the replay's letter and begins the next replay.
local function replay_over(id, n)
  local c = record(id)
  if not c then return unqueue(id, n) end
  redis.call('HINCRBY', P .. 'f:' .. id, 'replayed', 1)
  if redis.call('HEXISTS', P .. 'letters', n) == 1 then drop_letter(n) else replay_ends(c, n) end
end
