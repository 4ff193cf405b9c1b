-- The delays between attempts (fsm/spec/schedule.go).

local function retry_delay(n)
  if n < 1 then n = 1 end
  local base, span = FSM.RETRY_SLOW, FSM.RETRY_SLOW_JITTER
  if n <= FSM.RETRY_SLOW_AFTER then base, span = math.min(FSM.RETRY_BASE * 2 ^ n, FSM.RETRY_CAP), FSM.RETRY_JITTER end
  return math.floor(base + span * JITTER / FSM.JITTER_SPAN)
end

-- delay_of returns how long a consumer waits after failed attempt n, by the delays of its profile.
local function delay_of(delays, n)
  local d = delays[math.min(math.max(n, 1), #delays)]
  local least, span = d * (100 - FSM.RETRY_VARIANCE) / 100, d * 2 * FSM.RETRY_VARIANCE / 100
  return math.floor(least + span * JITTER / FSM.JITTER_SPAN)
end
