package property

import (
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/test/harness"
)

// brokenLetters are about what is kept of deliveries that are dead. They are looked for in histories that have some.
var brokenLetters = []harness.BrokenScript{
	{
		Name: "what was delivered leaves a dead letter", File: "redisstore/lua/deliver.lua",
		Old: " and letter ~= ''", New: "",
	},
	{
		Name: "a letter outlives its replay", File: "redisstore/lua/lib.lua",
		Old: "  drop_letter(n)\n  redis.call('ZREM'", New: "  redis.call('ZREM'",
	},
	{
		Name: "two letters of a stream are replayed at a time", File: "redisstore/lua/lib.lua",
		Old: "  if redis.call('HEXISTS', P .. 'c:' .. c.id, 'replaying') == 1 then return end\n", New: "",
	},
	{
		Name: "a dead letter that is dropped still counts", File: "redisstore/lua/lib.lua",
		Old: "redis.call('HINCRBY', P .. 'dead_counts', sub, -1)", New: "1",
	},
}

// leaveLetter has an attempt that is out leave a dead letter, if there are none.
func (h *history) leaveLetter() {
	for _, wake := range slices.Backward(h.refs) {
		c, there := h.db.Consumer(wake.Consumer)
		if len(h.letters(allLetters)) == 0 && there && c.Out(wake.Ref()) {
			h.delivers(wake, true)
			h.newNonce()
		}
	}
}

var allLetters = fsm.LetterSpan{Through: fsm.MaxLetterNumber}

// dropLetters drops some dead letters. If there are none, an attempt that is out leaves one.
func (h *history) dropLetters() {
	h.leaveLetter()
	span := fsm.LetterSpan{
		Subscription: h.pick("of", []string{"", "one", "two"}), Through: fsm.MaxLetterNumber,
	}
	list := h.letters(allLetters)
	if len(list) > 0 && rapid.Bool().Draw(h.t, "only") {
		one := rapid.IntRange(0, len(list)-1).Draw(h.t, "letter")
		span.From, span.Through = list[one].ID.Number, list[one].ID.Number
	}
	most := rapid.IntRange(1, 3).Draw(h.t, "most")
	got, err := h.store.DropDeadLetters(h.ctx, span, most)
	h.must(err)
	want, err := h.spec.DropDeadLetters(h.ctx, span, most)
	h.must(err)
	h.same("letters dropped", got, want)
}

// replay has some dead letters replayed. If there are none, an attempt that is out leaves one.
func (h *history) replay() {
	h.leaveLetter()
	span := fsm.LetterSpan{
		Subscription: h.pick("of", []string{"", "one", "two"}), Through: fsm.MaxLetterNumber,
	}
	most := rapid.IntRange(1, 3).Draw(h.t, "most")
	got, outcome, err := h.store.ReplayDeadLetters(h.ctx, span, most)
	h.must(err)
	want, wantOutcome, err := h.spec.ReplayDeadLetters(h.ctx, span, most)
	h.must(err)
	h.same("what is to be replayed", got, want)
	h.outcome("replay", outcome, wantOutcome)
}

func (h *history) letters(span fsm.LetterSpan) []fsm.DeadLetter {
	list, err := h.spec.DeadLetters(h.ctx, span, 1000)
	h.must(err)
	return list
}

// lettersAgree compares the dead letters, of each subscription and of all, and how many there are.
func (h *history) lettersAgree(kind string) {
	for _, id := range []string{"", "one", "two"} {
		span := fsm.LetterSpan{Subscription: id, Through: fsm.MaxLetterNumber}
		got, err := h.store.DeadLetters(h.ctx, span, 1000)
		h.must(err)
		h.same("after "+kind+": dead letters of "+id, got, h.letters(span))
	}
	got, err := h.store.CountDeadLetters(h.ctx)
	h.must(err)
	want, err := h.spec.CountDeadLetters(h.ctx)
	h.must(err)
	h.same("after "+kind+": dead letters counted", got, want)
	kept, err := h.rdb.HLen(h.ctx, "rv:{0}:letters").Result()
	h.must(err)
	h.same("after "+kind+": dead letters kept", kept, len(h.letters(allLetters)))
	replays, waiting := h.db.Replays(), map[string][]int64{}
	keys, err := h.rdb.Keys(h.ctx, "rv:{0}:r:*").Result()
	h.must(err)
	for _, key := range keys {
		id := strings.TrimPrefix(key, "rv:{0}:r:")
		numbers, err := h.rdb.ZRange(h.ctx, key, 0, -1).Result()
		h.must(err)
		for _, text := range numbers {
			n, err := strconv.ParseInt(text, 10, 64)
			h.must(err)
			waiting[id] = append(waiting[id], n)
		}
	}
	h.same("after "+kind+": dead letters to be replayed", waiting, replays)
}
