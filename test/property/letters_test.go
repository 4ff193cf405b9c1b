package property

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/fsm/spec"
	"reveille/test/harness"
)

// brokenLetters are about what is kept of deliveries that are dead. They are looked for in histories that have some.
var brokenLetters = []harness.BrokenScript{
	{
		Name: "what was delivered leaves a dead letter", File: "redisstore/lua/deliver.lua",
		Old: "if letter ~= '' then keep_letters", New: "if true then keep_letters",
	},
	{
		Name: "a letter outlives its replay", File: "redisstore/lua/library/replay.lua",
		Old: "if redis.call('HEXISTS', P .. 'letters', n) == 1 then drop_letter(n) else replay_ends(c, n) end",
		New: "replay_ends(c, n)",
	},
	{
		Name: "two letters of a stream are replayed at a time", File: "redisstore/lua/library/replay.lua",
		Old: "  if redis.call('HEXISTS', P .. 'f:' .. c.id, 'replaying') == 1 then return end\n", New: "",
	},
	{
		Name: "a replay that was cancelled goes on", File: "redisstore/lua/cancel_replays.lua",
		Old: "if aside then remove(aside) end", New: "",
	},
	{
		Name: "a replay has the epochs of one that was cancelled", File: "redisstore/lua/library/replay.lua",
		Old: "math.max(c.epoch, floor())", New: "c.epoch",
	},
	{
		Name: "a dead letter that is dropped is replayed all the same", File: "redisstore/lua/library/replay.lua",
		Old: "  else\n    unqueue(id, n)\n", New: "",
	},
	{
		Name: "a dead letter that is dropped still counts", File: "redisstore/lua/library/replay.lua",
		Old: "redis.call('HINCRBY', P .. 'dead_counts', sub, -1)", New: "1",
	},
}

// leaveLetter has attempts that are out leave dead letters, until attempts have left two. If none is out, some stream
// is linked, which may hand one out.
func (h *history) leaveLetter() {
	left := 0
	for _, l := range h.letters(allLetters) {
		if l.Class == "" {
			left++
		}
	}
	for tries := 3; tries > 0 && left < 2; tries-- {
		out := slices.IndexFunc(h.refs, func(wake fsm.Delivery) bool {
			c, there := h.db.Consumer(wake.Consumer)
			return there && spec.Out(c, wake.Ref())
		})
		if out >= 0 {
			h.delivers(h.refs[out], true)
			left++
		} else {
			h.link()
		}
		h.newNonce()
	}
}

var allLetters = fsm.LetterSpan{Through: fsm.MaxLetterNumber}

// dropLetters drops some dead letters. If there are none, an attempt that is out leaves one.
func (h *history) dropLetters() {
	h.leaveLetter()
	if rapid.Bool().Draw(h.t, "to be replayed") {
		h.replays(allLetters, 5)
		h.newNonce()
	}
	span := fsm.LetterSpan{
		Subscription: h.pick("of", []string{"", "one", "two"}),
		Stream:       h.pick("stream", []string{"", "", "/a", "/b"}), Through: fsm.MaxLetterNumber,
	}
	list := h.letters(allLetters)
	if len(list) > 0 && rapid.Bool().Draw(h.t, "only") {
		one := rapid.IntRange(0, len(list)-1).Draw(h.t, "letter")
		span.From, span.Through = list[one].ID.Number, list[one].ID.Number
		replays := h.db.Replays()
		for _, id := range slices.Sorted(maps.Keys(replays)) { // best one that waits for its replay
			if n := len(replays[id]); n > 1 {
				span.From, span.Through = replays[id][n-1], replays[id][n-1]
			}
		}
	}
	most := rapid.IntRange(1, 3).Draw(h.t, "most")
	got, outcome, err := h.store.DropDeadLetters(h.ctx, span, most)
	h.must(err)
	want, wantOutcome, err := h.spec.DropDeadLetters(h.ctx, span, most)
	h.must(err)
	h.same("letters dropped", got, want)
	h.outcome("drop letters", outcome, wantOutcome)
}

// replay has some dead letters replayed, of which some are taken at once. If there are none, an attempt that is out
// leaves one.
func (h *history) replay() {
	h.leaveLetter()
	span := fsm.LetterSpan{
		Subscription: h.pick("of", []string{"", "one", "two"}),
		Stream:       h.pick("stream", []string{"", "", "/a", "/b"}), Through: fsm.MaxLetterNumber,
	}
	from := len(h.refs)
	h.replays(span, rapid.IntRange(1, 3).Draw(h.t, "most"))
	for _, wake := range h.refs[from:] {
		c, _ := h.db.Consumer(wake.Consumer)
		if c.Replay != 0 && rapid.IntRange(0, 2).Draw(h.t, "is taken") == 0 {
			h.newNonce()
			h.reports(wake, fsm.Delivered{
				Path: wake.Primary, To: wake.End(), Within: wake.End(), Tail: wake.End(), Profile: h.profile(wake),
			})
		}
	}
}

func (h *history) replays(span fsm.LetterSpan, most int) {
	got, outcome, err := h.store.ReplayDeadLetters(h.ctx, span, most)
	h.must(err)
	want, wantOutcome, err := h.spec.ReplayDeadLetters(h.ctx, span, most)
	h.must(err)
	h.same("what is to be replayed", got, want)
	h.outcome("replay", outcome, wantOutcome)
}

// replaySpan has some of a stream replayed.
func (h *history) replaySpan() {
	var born int64
	var ref fsm.ConsumerRef
	for _, c := range h.db.Consumers() {
		if _, queued := h.db.Replays()[c.ID]; !c.IsAside() && !c.Profile.IsZero() && (ref.ID == "" || !queued) {
			ref, born = c.Ref(), c.Born
		}
	}
	span := fsm.ReplaySpan{From: h.offset("from"), To: h.offset("to")}
	if ref.ID == "" || !span.To.After(span.From) {
		return
	}
	if rapid.IntRange(0, 9).Draw(h.t, "of another") == 0 {
		born++
	}
	got, outcome, err := h.store.ReplaySpan(h.ctx, ref, born, span)
	want, wantOutcome, wantErr := h.spec.ReplaySpan(h.ctx, ref, born, span)
	if !errors.Is(wantErr, fsm.ErrNotFound) || !errors.Is(err, fsm.ErrNotFound) {
		h.must(err)
		h.must(wantErr)
	}
	h.same("the number of a span", got, want)
	h.outcome("replay of a span", outcome, wantOutcome)
}

// cancelReplays empties the queue of a consumer, of one that has something in it if there is any.
func (h *history) cancelReplays() {
	with := slices.Sorted(maps.Keys(h.db.Replays()))
	if len(with) == 0 {
		with = []string{"one:%2Fa"}
	}
	ref := fsm.ConsumerRef{ID: h.pick("consumer", with), Home: primaries[0]}
	got, outcome, err := h.store.CancelReplays(h.ctx, ref)
	h.must(err)
	want, wantOutcome, err := h.spec.CancelReplays(h.ctx, ref)
	h.must(err)
	h.same("replays cancelled", got, want)
	h.outcome("cancel", outcome, wantOutcome)
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
	for _, ids := range [][]string{nil, {"two"}, {"one", "none", "two"}} {
		got, err := h.store.LettersOf(h.ctx, ids)
		h.must(err)
		want, err := h.spec.LettersOf(h.ctx, ids)
		h.must(err)
		h.same(fmt.Sprint("after ", kind, ": dead letters of ", ids), got, want)
	}
	kept, err := h.rdb.HLen(h.ctx, "rv:{0}:letters").Result()
	h.must(err)
	h.same("after "+kind+": dead letters kept", kept, len(h.letters(allLetters)))
	h.queuesAgree(kind)
}

// queuesAgree compares what is to be replayed.
func (h *history) queuesAgree(kind string) {
	for _, id := range []string{"", "one", "two"} {
		got, err := h.store.ReplayQueues(h.ctx, 0, id, "", 1000)
		h.must(err)
		want, err := h.spec.ReplayQueues(h.ctx, 0, id, "", 1000)
		h.must(err)
		h.same("after "+kind+": replay queues of "+id, got, want)
	}
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
	h.same("after "+kind+": what is to be replayed", waiting, replays)
	keys, err = h.rdb.Keys(h.ctx, "rv:{0}:rs:*").Result()
	h.must(err)
	for _, key := range keys {
		if id := strings.TrimPrefix(key, "rv:{0}:rs:"); len(waiting[id]) == 0 {
			h.fail("after %s: %s has spans, and nothing to replay", kind, id)
		}
	}
}
