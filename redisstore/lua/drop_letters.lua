-- Drops dead letters and their replays, the latest ones first. So no replay begins of a letter that goes next.
-- sub, consumer: "" for all  from: first number  through: last number  most: how many letters it looks at, at most.
-- Returns { dropped, 0, looked at, last }. `last` is the number of the last letter that it looked at, 0 for
-- none. O(letters looked at).
local sub, consumer, from, through, most = unpack(ARGV, A)
local dropped = 0
local list = P .. (sub == '' and 'dead' or 'dead:' .. sub)
local numbers = redis.call('ZREVRANGEBYSCORE', list, through, from, 'LIMIT', 0, most)
for _, n in ipairs(numbers) do
  if consumer == '' or is_of(letter_of(n), consumer) then
    dropped = dropped + 1
    drop_letter(n)
  end
end
return reply(dropped, 0, #numbers, numbers[#numbers] or 0)
