-- Offsets (fsm.Offset).

-- other says whether offsets a and b are of two incarnations of their stream (fsm.Offset).
local function other(a, b)
  local i = string.find(a, '/', 1, true)
  local j = i and string.find(b, '/', 1, true)
  return j and string.sub(a, 1, i) ~= string.sub(b, 1, j) or false
end

-- differ_after is after for two offsets that differ. Neither is empty or the start. It compares byte by byte, because
-- Lua's own < follows the server's locale. The offsets mostly have a long common beginning.
local function differ_after(a, b)
  local i = 1
  while string.sub(a, i, i + 15) == string.sub(b, i, i + 15) do i = i + 16 end
  while true do
    local a1, a2, a3, a4 = string.byte(a, i, i + 3)
    local b1, b2, b3, b4 = string.byte(b, i, i + 3)
    local x, y
    if a1 ~= b1 then x, y = a1, b1
    elseif a2 ~= b2 then x, y = a2, b2
    elseif a3 ~= b3 then x, y = a3, b3
    else x, y = a4, b4 end
    if x ~= y then return (x or -1) > (y or -1) and not other(a, b) end
    i = i + 4
  end
end

-- after says whether offset a lies beyond b. Scripts ask this about the same two offsets again and again.
local last_a, last_b, last
local function after(a, b)
  if a == '' or a == b or a == '-1' then return false end
  if b == '' or b == '-1' then return true end
  if a ~= last_a or b ~= last_b then last_a, last_b, last = a, b, differ_after(a, b) end
  return last
end

-- ahead mirrors fsm.Offset.Ahead.
local function ahead(offset, acked) return after(offset, acked) or other(offset, acked) end
