-- Says whether the server began its life, and so may have lost the latest changes of the one before, less than a while ago. A first
-- life has lost nothing.
-- ARGV[9] the while, ms
-- Returns 1 or 0. O(1).
local base = fence()
return base > 0 and now - base / 1024 < tonumber(ARGV[A]) and 1 or 0
