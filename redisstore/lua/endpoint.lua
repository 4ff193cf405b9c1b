-- What scripts begin with that are about one endpoint, after changed.lua. The functions mirror fsm/endpoint.go.
--
-- An endpoint is kept by the generation of its subscription, unless it is not in trouble, as
--   version until failures next probing probes since refused reason
-- until: when deliveries may begin again, ms, 0 for none; next: when the next probe may begin, ms, 0 for none; probing: 1 while one is
-- out, 0 otherwise; since: when the first delivery failed since the last 2xx, ms, 0 if none has; refused: 1 if the latest was refused for
-- good, 0 otherwise; reason: why it failed, which may have blanks in it.
--
-- KEYS[1] hash generation -> endpoint in trouble  KEYS[2] version of that hash  KEYS[3] zset of changes of that hash
-- KEYS[4] hash id -> subscription as JSON
-- ARGV[1] now in ms, or -1 for Redis's own clock  ARGV[2] id of the subscription  ARGV[3] its generation
-- ARGV[4] the highest version of KEYS[1] that the caller has seen  ARGV[5] a number from 0 to 2047, drawn by chance
-- ARGV[6…] the script's own
--
-- They return { version of the list in which the endpoint came on it as it is, or of the list now if it is not on it, until, failures,
-- next, probing, probes, since, refused, reason, now, 1 if the script says yes, otherwise 0 }.
local now = tonumber(ARGV[1])
if now < 0 then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- endpoint returns what is kept.
local function endpoint()
  local f, kept = {}, redis.call('HGET', KEYS[1], ARGV[3]) or ''
  for n in string.gmatch(kept, '%d+') do
    f[#f + 1] = n
    if #f == 8 then break end
  end
  local function number(i) return tonumber(f[i] or '0') end
  return {
    version = f[1], pause = number(2), failures = number(3), next = number(4), probing = number(5), probes = number(6),
    since = number(7), refused = number(8), reason = string.match(kept, '^' .. string.rep('%d+ ', 8) .. '(.*)$') or '',
  }
end

local function is_down(e) return e.failures >= DOWN_AFTER end

local function probe_pause(failed) return math.min(PROBE_PAUSE * 2 ^ failed, PROBE_PAUSE_MAX) end

-- is_out says whether a probe is out, by its slot.
local function is_out(e, slot) return e.probing == 1 and e.next == slot end

-- is_listed says whether the subscription is there: nothing is kept of one that was deleted.
local function is_listed()
  local there = redis.call('HGET', KEYS[4], ARGV[2])
  return there and cjson.decode(there).generation == ARGV[3]
end

-- return_probe has a probe be over that did not fail: the next one follows at once, or after a pause if it was sent.
local function return_probe(e, sent)
  e.probing, e.next = 0, now
  if sent then e.probes, e.next = 0, now + probe_pause(0) end
end

local function endpoint_reply(e, yes)
  return {
    e.version or redis.call('GET', KEYS[2]) or '0', e.pause, e.failures, e.next, e.probing, e.probes, e.since, e.refused, e.reason, now,
    yes and 1 or 0,
  }
end

-- put_endpoint keeps an endpoint as it is now, if it is in trouble, and returns the reply.
local function put_endpoint(e, yes)
  e.version = changed(KEYS[2], KEYS[3], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]))
  if e.pause == 0 and e.failures == 0 and e.since == 0 then
    redis.call('HDEL', KEYS[1], ARGV[3])
  else
    redis.call('HSET', KEYS[1], ARGV[3],
      string.format('%s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %s', e.version, e.pause, e.failures, e.next, e.probing, e.probes, e.since,
        e.refused, e.reason))
  end
  return endpoint_reply(e, yes)
end

