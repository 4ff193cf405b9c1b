-- Takes in that a generation of a subscription was deleted. Its consumers are gone at once for every other script. They
-- and its dead letters are marked for removal (drop.lua). From now on, no script makes a consumer of it: links by an
-- older list ask first (link_stream.lua). If it has neither, the partition keeps only one version for all deleted
-- subscriptions.
-- version: one of the list of subscriptions that no longer has it.
-- Returns how many consumers and dead letters are left. O(1).
local sub, gen, version = unpack(ARGV, A)
touched = true
redis.call('DEL', P .. 'a:' .. gen)
if tonumber(version) > tonumber(redis.call('HGET', P .. 'meta', 'deleted') or '0') then
  redis.call('HSET', P .. 'meta', 'deleted', version)
end
local left = redis.call('SCARD', P .. 'b:' .. sub .. ':' .. gen) + redis.call('ZCARD', P .. 'dead:' .. sub)
if left > 0 and redis.call('HSET', P .. 'dropping', gen, sub) == 1 then
  redis.call('HINCRBY', P .. 'meta', 'dropping', 1)
end
return reply(left)
