-- What a script returns.

-- or_nil returns a list for a reply. An empty list becomes false, which is nil in the reply and costs Redis less.
local function or_nil(list) return #list > 0 and list end

local function outcome() return { or_nil(deliveries), or_nil(idle), or_nil(hidden), or_nil(gone), or_nil(ended), or_nil(left), or_nil(quarantined) } end

-- reply returns the reply of a script: its own, and the watermark.
local function reply(own) return { own, watermark() } end
