package harness

// BrokenScript makes a Lua script of the store wrong by a change in one place.
type BrokenScript struct {
	Name string
	// File is the script's path in the project. Old stands in it once, and New takes its place.
	File, Old, New string
}

// BrokenScripts are faults that two kinds of tests must find: the comparison with the transitions, and the checker of
// the fault tests.
var BrokenScripts = []BrokenScript{
	{
		Name: "a synchronous done acks the tail at the time of the answer", File: "redisstore/lua/finish.lua",
		Old: "if l and not after(seen, l.tail) then ack(c, path, seen) end",
		New: "if l then ack(c, path, l.tail) end",
	},
	{
		Name: "each attempt has a wake id of its own", File: "redisstore/lua/library/wake.lua",
		Old: "local function hand_out(c)\n",
		New: "local function hand_out(c)\n  c.wake = 'w_' .. string.sub(redis.sha1hex(NONCE .. c.id), 1, 20)\n",
	},
	{
		Name: "the epoch does not rise", File: "redisstore/lua/library/wake.lua",
		Old: "  c.epoch = math.max(c.epoch, base) + 1\n",
		New: "  c.epoch = math.max(c.epoch, 1)\n",
	},
	{
		Name: "epochs do not jump over what Redis has lost", File: "redisstore/lua/library/fence.lua",
		Old: "local function fence()\n",
		New: "local function fence()\n  if true then return 0 end\n",
	},
	{
		Name: "a consumer has one wake id for ever", File: "redisstore/lua/library/wake.lua",
		Old: "redis.sha1hex(NONCE .. c.id)",
		New: "redis.sha1hex(c.id)",
	},
	{
		Name: "callbacks of older epochs are accepted", File: "redisstore/lua/callback.lua",
		Old: "if epoch ~= c.epoch or token_epoch ~= c.epoch then return refuse('STALE_EPOCH') end",
		New: "",
	},
	{
		Name: "a wake takes back what was acknowledged", File: "redisstore/lua/library/wake.lua",
		Old: "  c.moved, c.attempt, c.handed, c.sent = 0, 0, 0, 0\n",
		New: "  c.moved, c.attempt, c.handed, c.sent = 0, 0, 0, 0\n" +
			"  if links(c)[c.primary] then links(c)[c.primary].acked = '-1' end\n",
	},
	{
		Name: "a consumer that is awake has no deadline", File: "redisstore/lua/library/steps.lua",
		Old: "if c.hidden == 0 then c.due = now() + LIVENESS end",
		New: "c.due = 0",
	},
	{
		Name: "a stream that answers 404 once is gone", File: "redisstore/lua/hide.lua",
		Old: "    c.hidden, c.due = now(), now() + GRACE\n    save(c)\n",
		New: "    remove(c, 'stream_gone')\n",
	},
	{
		Name: "an offset within the stream is refused", File: "redisstore/lua/callback.lua",
		Old: "moves(l, a[2]) and after(a[2], l.tail)",
		New: "moves(l, a[2])",
	},
}
