-- Counts a partition's consumers by state, for the metrics.
-- ARGV[9…] subscription, generation, … of those whose consumers are counted
-- Returns { waiting, aside, retired, live, given up, all, streams known, how long the oldest of waiting has waited in ms, 0 if none has,
-- dead letters, consumers in quarantine, for how long the oldest deadline has passed in ms, 0 if none has }.
-- O(subscriptions).
local function count(list) return redis.call('ZCARD', P .. list) end
local all = 0
for i = A, #ARGV, 2 do all = all + redis.call('SCARD', P .. 'b:' .. ARGV[i] .. ':' .. ARGV[i + 1]) end
local oldest = redis.call('ZRANGE', P .. 'waiting', 0, 0, 'WITHSCORES')[2]
local waited = oldest and math.max(0, now - oldest) or 0
local due = redis.call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2]
local overdue = due and math.max(0, now - due) or 0
return unchanged({
  count('waiting'), count('aside'), count('retired'), count('live'), count('given_up'), all, redis.call('HLEN', P .. 'known'), waited,
  count('dead'), redis.call('HLEN', P .. 'quarantined'), overdue,
})
