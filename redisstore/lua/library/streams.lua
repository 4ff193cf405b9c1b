-- The records of streams (fsm.Stream).

-- next_stamp moves the partition's stamp. The stamp is a time, in microseconds. So a store that has lost its latest
-- changes does not give a stamp twice.
local function next_stamp()
  local stamp = math.max(micros(), tonumber(redis.call('HGET', P .. 'meta', 'stamp') or '0') + 1)
  redis.call('HSET', P .. 'meta', 'stamp', int(stamp))
  return stamp
end

-- removed_stamp is the stamp of streams that are not on record: the stamp of the partition's latest removal.
local function removed_stamp() return tonumber(redis.call('HGET', P .. 'meta', 'removed') or '0') end

-- lost_version is the latest version of the list of subscriptions at which the partition may have lost its latest
-- changes (fsm.Stream.Lost). Versions are times (changed.lua), and so are the fences of the server's incarnations.
local function lost_version()
  local base = fence()
  return base > 0 and (math.floor(base / FSM.EPOCHS) + FSM.CLOCK_SKEW) * FSM.VERSIONS or 0
end

-- stream_of reads a stream's record (fsm.Stream), or returns nil if there is none. The record is stored as
--   first,noted,linked,stamp,till,lost,begin,tail,nonce
-- with a "?" in front while the stream is awaited. Times are in microseconds. The nonce is the nonce of the call that
-- linked the stream last.
local function stream_of(path)
  local raw = redis.call('HGET', P .. 'known', path)
  if not raw then return nil end
  local awaited = string.sub(raw, 1, 1) == '?'
  if awaited then raw = string.sub(raw, 2) end
  local f = {}
  for field in string.gmatch(raw .. ',', '([^,]*),') do f[#f + 1] = field end
  return {
    awaited = awaited, first = tonumber(f[1]), noted = tonumber(f[2]), linked = tonumber(f[3]), stamp = tonumber(f[4]),
    till = tonumber(f[5]), lost = tonumber(f[6]), begin = f[7], tail = f[8], nonce = f[9],
  }
end

local function put_stream(path, s)
  touched = true
  redis.call('HSET', P .. 'known', path, (s.awaited and '?' or '') .. table.concat({
    int(s.first), int(s.noted), int(s.linked), int(s.stamp), int(s.till), int(s.lost), s.begin, s.tail, s.nonce or '',
  }, ','))
end

-- drop_stream takes a stream off the record, if it is there. An answer of upstream that was asked for before does not
-- count any more.
local function drop_stream(path)
  touched = true
  redis.call('HDEL', P .. 'known', path)
  redis.call('HSET', P .. 'meta', 'removed', int(next_stamp()))
end

-- renew_stream renews the record of a stream that was made anew. Earlier answers of upstream, and earlier writes to the
-- stream, do not count any more.
local function renew_stream(path)
  local s = stream_of(path)
  if s then
    s.stamp = next_stamp()
    s.first, s.begin, s.tail = s.stamp, '-1', ''
    put_stream(path, s)
  end
end

-- stream_reply is what scripts return about a record: { record or "", removed stamp, lost version }.
local function stream_reply(path)
  return { redis.call('HGET', P .. 'known', path) or '', int(removed_stamp()), int(lost_version()) }
end
