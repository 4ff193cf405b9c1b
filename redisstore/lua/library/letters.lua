-- Dead letters: what is left of events that are not tried again (fsm/spec/lost.go).

-- keep_letters stores dead letters of a consumer's subscription. The list letters has two items for each: since when
-- deliveries had failed, as a text, and what it tells (redisstore.letter). It returns the number of the first.
-- O(letters).
local function keep_letters(c, letters)
  local first, n = next_stamp(), #letters / 2
  if n > 1 then redis.call('HSET', P .. 'meta', 'stamp', int(first + n - 1)) end
  local kept, numbers = {}, {}
  for i = 1, 2 * n, 2 do
    local number = int(first + (i - 1) / 2)
    kept[i], kept[i + 1] = number, letters[i] .. ' ' .. c.sub .. ' ' .. letters[i + 1]
    numbers[i], numbers[i + 1] = number, number
  end
  in_chunks(kept, function(...) redis.call('HSET', P .. 'letters', ...) end)
  in_chunks(numbers, function(...)
    redis.call('ZADD', P .. 'dead', ...)
    redis.call('ZADD', P .. 'dead:' .. c.sub, ...)
  end)
  redis.call('HINCRBY', P .. 'dead_counts', c.sub, int(n))
  return int(first)
end

-- letter_text returns what a dead letter tells if no attempt has left it (spec.letter). The values attempts and
-- born are written by int, because cjson would round large numbers.
local function letter_text(c, path, from, to, class, why, attempts, born)
  local texts = cjson.encode({
    g = c.gen, c = c.owner or c.id, s = path, f = from, t = to, w = to, k = class, r = why or '',
  })
  return string.sub(texts, 1, -2) .. ',"a":' .. int(attempts) .. ',"o":' .. int(born) .. '}'
end

-- leave_letters leaves the dead letters of a consumer, and of its asides, if the consumer goes with its stream for a
-- cause. The tail is the last one of that stream (spec.lost). O(asides).
local function leave_letters(c, cause, tail)
  local letters, ids = {}, c.owner and { c.id } or redis.call('SMEMBERS', P .. 'x:' .. c.id)
  table.sort(ids, function(a, b) return #a < #b or #a == #b and a < b end) -- by their numbers (aside_id)
  links_read = links_read + #ids
  local function lost(id, to)
    local of = id == c.id and c or peek(id)
    local ends = to or of and of.ends
    if not of or of.replay > 0 or not of.acked or not ends or not ahead(ends, of.acked) then return end
    local why = not to and redis.call('HGET', P .. 'f:' .. id, 'error')
    letters[#letters + 1] = int(of.failing)
    letters[#letters + 1] = letter_text(c, c.primary, of.acked, ends, cause, why, of.attempt, of.born)
  end
  for _, id in ipairs(ids) do lost(id) end
  if not c.owner and c.state ~= 'given_up' and c.profile and string.find(c.profile, '^%d+,[12]') then
    lost(c.id, tail)
  end
  if #letters == 0 then return end
  keep_letters(c, letters)
  tell('left', c.sub, c.primary, cause, #letters / 2)
end

-- leave_letter leaves the dead letter of a consumer that is given up, and notes its number (spec.unwoken).
-- Paths compare as offsets of one incarnation do. O(links).
local function leave_letter(c)
  local first
  for path, l in pairs(links(c)) do
    local comes_first = first ~= c.primary and (not first or path == c.primary or differ_after(first, path))
    if ahead(l.tail, l.acked) and comes_first then first = path end
  end
  if not first or c.owner then return end
  local l, why = links(c)[first], redis.call('HGET', P .. 'f:' .. c.id, 'error')
  redis.call('HSET', P .. 'f:' .. c.id, 'letter', keep_letters(c, {
    int(c.failing), letter_text(c, first, l.acked, l.tail, 'given_up', why, c.attempt, c.born),
  }))
end

-- letter_of returns what a dead letter tells (redisstore.letter). It is nil if the letter is not kept, or cannot be
-- read.
local function letter_of(n)
  local text = string.match(redis.call('HGET', P .. 'letters', n) or '', '^%d+ %S+ (.+)$')
  local ok, letter = pcall(cjson.decode, text or '')
  return ok and type(letter) == 'table' and letter or nil
end

-- letters_of returns the numbers of the first letters of a span (fsm.LetterSpan), of all streams, at most so many.
local function letters_of(sub, from, through, most)
  return redis.call('ZRANGEBYSCORE', P .. (sub == '' and 'dead' or 'dead:' .. sub), from, through, 'LIMIT', 0, most)
end

-- is_of says whether a dead letter is for this consumer, or for any if the id is "".
local function is_of(letter, id) return id == '' or letter and letter.c == id end
