-- This file begins every script about one endpoint, after changed.lua. The functions mirror fsm/spec/endpoint.go.
--
-- An endpoint in trouble is kept by the generation of its subscription, as this text:
--   "version until failures next probing probes since refused reason".
-- `until` is when deliveries may begin again, ms, 0 for none. `next` is when the next probe may begin, ms, 0 for none.
-- `probing` is 1 while a probe is out, otherwise 0. `since` is when the first delivery after the last 2xx failed, ms, 0
-- if none has. `refused` is 1 if the latest failure was a refusal for good, otherwise 0. `reason` says why it failed,
-- and may have blanks in it.
--
-- list_key: hash generation -> endpoint in trouble  version_key: of that hash  changes_key: zset of its changes.
-- subscriptions_key: hash id -> subscription as JSON.
-- pauses_key: zset of the origins that are left alone, each with the time in ms at which requests may begin again. A
-- change of it is a new version of the list.
-- now: ms, or -1 for Redis's own clock  sub: id of the subscription  gen: its generation.
-- seen: the list's highest version that the caller has seen  drawn: a random number from 0 to 2047.
-- origin: that of its webhook, "" for none. From ARGV[7] on follow the script's own.
--
-- The scripts return { version, until, failures, next, probing, probes, since, refused, reason, now, yes, paused, list
-- }. `version` is the version in which the endpoint came on the list as it is. If it is not on the list, `version` is
-- the version of the list now. `yes` is 1 if the script says yes, otherwise 0. `paused` is until when the origin is
-- left alone, ms, 0 for none. `list` is the version of the list now.
local list_key, version_key, changes_key, subscriptions_key, pauses_key = unpack(KEYS)
local now, sub, gen, seen, drawn, origin = unpack(ARGV, 1, 6)
now = tonumber(now)
if now < 0 then now = server_time() end

-- endpoint returns the stored endpoint.
local function endpoint()
  local f, kept = {}, redis.call('HGET', list_key, gen) or ''
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

local function is_down(e) return e.failures >= FSM.DOWN_AFTER end

local function probe_pause(failed) return math.min(FSM.PROBE_PAUSE * 2 ^ failed, FSM.PROBE_PAUSE_MAX) end

-- is_out says whether the probe of this slot is out.
local function is_out(e, slot) return e.probing == 1 and e.next == slot end

-- is_listed says whether the subscription is there. Nothing is kept of a deleted subscription.
local function is_listed()
  local there = redis.call('HGET', subscriptions_key, sub)
  return there and cjson.decode(there).generation == gen
end

-- return_probe ends a probe that did not fail. The next one follows at once, or after a pause if this one was sent.
local function return_probe(e, sent)
  e.probing, e.next = 0, now
  if sent then e.probes, e.next = 0, now + probe_pause(0) end
end

-- paused returns until when the origin is left alone, 0 for none.
local function paused() return tonumber(redis.call('ZSCORE', pauses_key, origin) or '0') end

-- new_version gives the list a new version, and returns it.
local function new_version() return changed(version_key, changes_key, gen, tonumber(seen), tonumber(drawn)) end

local function endpoint_reply(e, yes)
  local list = redis.call('GET', version_key) or '0'
  return {
    e.version or list, e.pause, e.failures, e.next, e.probing, e.probes, e.since, e.refused, e.reason,
    now, yes and 1 or 0, paused(), list,
  }
end

-- put_endpoint stores an endpoint as it is now if it is in trouble, or else removes it. It returns the reply.
local function put_endpoint(e, yes)
  e.version = new_version()
  if e.pause == 0 and e.failures == 0 and e.since == 0 then
    redis.call('HDEL', list_key, gen)
  else
    local text = string.format('%s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %s', e.version, e.pause, e.failures, e.next,
      e.probing, e.probes, e.since, e.refused, e.reason)
    redis.call('HSET', list_key, gen, text)
  end
  return endpoint_reply(e, yes)
end

