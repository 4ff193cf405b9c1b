-- How long ago the server began its life, and may have lost the latest changes of the one before. A first life has lost nothing.
-- Returns milliseconds, or -1. O(1).
local base = fence()
if base == 0 then return -1 end
return math.max(0, math.floor(now - base / 1024))
