-- Counts dead letters.
-- each: 1 to count those of each subscription, 0 for those of some, which then follow.
-- Returns { number of the last letter, 0 for none, how many there are, { subscription, how many it has, … } }. Only
-- subscriptions that have letters are in the list. O(subscriptions that are asked for), or O(those that have letters).
local each, of = ARGV[A], {}
if each == '1' then
  of = redis.call('HGETALL', P .. 'dead_counts')
elseif redis.call('EXISTS', P .. 'dead') == 1 then
  for from = A + 1, #ARGV, 1000 do
    local subs = { unpack(ARGV, from, math.min(from + 999, #ARGV)) }
    for i, n in ipairs(redis.call('HMGET', P .. 'dead_counts', unpack(subs))) do
      if n then
        of[#of + 1] = subs[i]
        of[#of + 1] = n
      end
    end
  end
end
return reply(redis.call('ZRANGE', P .. 'dead', -1, -1)[1] or 0, redis.call('ZCARD', P .. 'dead'), of)
