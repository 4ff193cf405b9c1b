-- Puts a stream on record, or awaits an awaited stream for longer.
-- stamp: as it was read before the tail was asked for, or "" if nothing was asked.
-- tail: as upstream showed it, or "" if the stream is only awaited.
-- begin: where existing subscriptions begin  span: how long until the record is due for a look, ms.
-- lost: a version of the list of subscriptions. To subscriptions up to it, what is in the stream may be news.
-- Returns { code, record }. Code 1: it is on record now. Code 0: nothing was changed. Either a record is there although
-- a tail was shown, or upstream was asked before the stamp moved. O(1).
local path, stamp, tail, begin, span, lost = unpack(ARGV, A)
local till = micros() + span * 1000
local s = stream_of(path)
if not s then
  if stamp ~= '' and tonumber(stamp) ~= removed_stamp() then return reply(0, stream_reply(path)) end
  s = {
    awaited = tail == '', first = micros(), till = till, noted = 0, linked = 0, stamp = next_stamp(),
    lost = math.max(lost_version(), tonumber(lost)), begin = begin, tail = tail,
  }
elseif not s.awaited or tail ~= '' then
  -- A stream that is present is linked, or will be. The tail of an awaited stream may be news to a subscription.
  return reply(tail == '' and 1 or 0, stream_reply(path))
elseif till > s.till then
  s.till = till
end
put_stream(path, s)
return reply(1, stream_reply(path))
