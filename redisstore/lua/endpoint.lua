-- What scripts begin with that are about one endpoint, after changed.lua. The functions mirror fsm/endpoint.go.
--
-- An endpoint is kept as "version until" by the generation of its subscription, unless it is not in trouble: until: when deliveries may
-- begin again, ms, 0 for none.
--
-- KEYS[1] hash generation -> endpoint in trouble  KEYS[2] version of that hash  KEYS[3] zset of changes of that hash
-- KEYS[4] hash id -> subscription as JSON
-- ARGV[1] now in ms, or -1 for Redis's own clock  ARGV[2] id of the subscription  ARGV[3] its generation
-- ARGV[4] the highest version of KEYS[1] that the caller has seen  ARGV[5] a number from 0 to 2047, drawn by chance
-- ARGV[6…] the script's own
--
-- They return { version of the list in which the endpoint came on it as it is, or of the list now if it is not on it, until, now }.
local now = tonumber(ARGV[1])
if now < 0 then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- endpoint returns what is kept.
local function endpoint()
  local f = {}
  for n in string.gmatch(redis.call('HGET', KEYS[1], ARGV[3]) or '', '%d+') do f[#f + 1] = n end
  return { version = f[1], pause = tonumber(f[2] or '0') }
end

-- is_listed says whether the subscription is there: nothing is kept of one that was deleted.
local function is_listed()
  local there = redis.call('HGET', KEYS[4], ARGV[2])
  return there and cjson.decode(there).generation == ARGV[3]
end

local function endpoint_reply(e) return { e.version or redis.call('GET', KEYS[2]) or '0', string.format('%.0f', e.pause), now } end

-- put_endpoint keeps an endpoint as it is now, if it is in trouble, and returns the reply.
local function put_endpoint(e)
  e.version = changed(KEYS[2], KEYS[3], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]))
  if e.pause == 0 then
    redis.call('HDEL', KEYS[1], ARGV[3])
  else
    redis.call('HSET', KEYS[1], ARGV[3], string.format('%s %.0f', e.version, e.pause))
  end
  return endpoint_reply(e)
end

