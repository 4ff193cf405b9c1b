-- What a script returns.

-- outcome returns the lists of fsm.Outcome, which end the items of a reply. An empty list becomes false: it is nil in
-- the reply, and costs Redis less.
local function outcome()
  return deliveries[1] and deliveries or false, idle[1] and idle or false, hidden[1] and hidden or false,
    gone[1] and gone or false, ended[1] and ended or false, left[1] and left or false,
    quarantined[1] and quarantined or false
end

-- reply returns the reply of a script: the watermark, and the script's own items. It is one list, because each list
-- costs Redis as much as ten items.
local function reply(...) return { watermark(), ... } end
