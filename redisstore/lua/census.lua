-- Counts a partition's consumers by state, for the metrics.
-- The arguments are sub, gen, … of the consumers to count.
-- Returns { waiting, aside, retired, live, given up, all, known, waited, dead, quarantined, overdue }. `known` counts
-- the streams on record, `dead` the dead letters. `waited` is how long the oldest consumer in waiting has waited, in
-- ms, 0 if there is none. `overdue` is how long ago the oldest deadline passed, in ms, 0 if none has. O(subscriptions).
local function count(list) return redis.call('ZCARD', P .. list) end
local all = 0
for i = A, #ARGV, 2 do
  local sub, gen = ARGV[i], ARGV[i + 1]
  all = all + redis.call('SCARD', P .. 'b:' .. sub .. ':' .. gen)
end
local oldest = redis.call('ZRANGE', P .. 'waiting', 0, 0, 'WITHSCORES')[2]
local waited = oldest and math.max(0, now() - oldest) or 0
local due = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2]
local overdue = due and math.max(0, now() - due) or 0
return reply(
  count('waiting'), count('aside'), count('retired'), count('live'), count('given_up'), all,
  redis.call('HLEN', P .. 'known'), waited, count('dead'), redis.call('HLEN', P .. 'quarantined'), overdue)
