-- What a script returns.

-- reply returns the reply of a script: the watermark now, the outcome, and the script's own items. A list in it costs
-- Redis as much as ten items. So an empty outcome is false, which is nil in a reply.
local function reply(...) return { watermark(), outcome[1] and outcome or false, ... } end
