-- A delivery attempt failed.
-- ARGV[9] consumer  ARGV[10] epoch  ARGV[11] wake id  ARGV[12] handed  ARGV[13] least wait asked for, ms
-- ARGV[14] 1 if the endpoint answered 410  ARGV[15] why it failed, in a few words  ARGV[16] the profile to go by from now on
-- ARGV[17] how many events, or bytes, the attempt has brought
-- Returns the outcome; nothing happens unless this very attempt is out. O(1), or O(links) when the consumer is given up.
local c = current(record, ARGV[A], ARGV[A + 1], ARGV[A + 2])
if c and c.state == 'waking' and c.sent == 1 and c.handed == tonumber(ARGV[A + 3]) and c.hidden == 0 then
  failed(c, tonumber(ARGV[A + 4]), ARGV[A + 5] == '1', ARGV[A + 6], ARGV[A + 7], ARGV[A + 8])
  save(c)
end
return unchanged(outcome())
