-- Takes in that a generation of a subscription was deleted. Its consumers are gone at once for every other script, and noted as yet to be
-- removed, like its dead letters (drop.lua). No consumer of it is made from now on: links by an older list ask first (link_stream.lua).
-- Without both, nothing is kept of it but one version for all that were deleted.
-- ARGV[9] subscription  ARGV[10] generation  ARGV[11] a version of the list of subscriptions that does not have it any more
-- Returns how many consumers and dead letters are yet to be removed. O(1).
local sub, gen, version = ARGV[A], ARGV[A + 1], ARGV[A + 2]
touched = true
redis.call('DEL', P .. 'a:' .. gen)
if tonumber(version) > tonumber(redis.call('HGET', P .. 'meta', 'deleted') or '0') then
  redis.call('HSET', P .. 'meta', 'deleted', version)
end
local left = redis.call('SCARD', P .. 'b:' .. sub .. ':' .. gen) + redis.call('ZCARD', P .. 'dead:' .. sub)
if left > 0 then redis.call('HSET', P .. 'dropping', gen, sub) end
return reply(left)
