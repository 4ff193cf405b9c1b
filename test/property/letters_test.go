package property

import (
	"slices"

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
		Name: "a dead letter that is dropped still counts", File: "redisstore/lua/drop_letters.lua",
		Old: "redis.call('HINCRBY', P .. 'dead_counts', sub, -1)", New: "1",
	},
}

// dropLetters drops some dead letters. If there are none, an attempt that is out leaves one.
func (h *history) dropLetters() {
	all := fsm.LetterSpan{Through: fsm.MaxLetterNumber}
	for _, wake := range slices.Backward(h.refs) {
		c, there := h.db.Consumer(wake.Consumer)
		if len(h.letters(all)) == 0 && there && c.Out(wake.Ref()) {
			h.delivers(wake, true)
			h.newNonce()
		}
	}
	span := fsm.LetterSpan{
		Subscription: h.pick("of", []string{"", "one", "two"}), Through: fsm.MaxLetterNumber,
	}
	list := h.letters(all)
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
	h.same("after "+kind+": dead letters kept", kept, len(h.letters(fsm.LetterSpan{Through: fsm.MaxLetterNumber})))
}
