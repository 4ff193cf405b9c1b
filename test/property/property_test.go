// Package property runs the pure transitions of fsm and the Lua scripts of redisstore side by side on random histories, and
// checks on each that they agree after every step and that the webhook spec's invariants hold.
package property

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"reveille/dispatcher"
	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// histories is how many the test runs unless -rapid.checks says otherwise.
const histories = "2000"

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(histories)
	}
	// Drawn here rather than by rapid, so that it can be printed whatever the outcome.
	if f := flag.Lookup("rapid.seed"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.FormatUint(rand.Uint64()|1, 10))
	}
	os.Exit(m.Run())
}

var timing = fsm.Timing{
	Waking: 10 * time.Second, Liveness: 45 * time.Second, GoneGrace: 30 * time.Second, GCAfter: 72 * time.Hour,
}

// The offsets of the histories in their order, byte by byte: no locale sorts them so.
var offsets = []fsm.Offset{"0000", "0000_1", "0001", "10", "9", "A", "Z", "_", "a", "a 7", "b", "~"}

// The primary streams, and one that is only ever subscribed to.
var (
	primaries = []string{"/a", "/b"}
	paths     = []string{"/a", "/b", "/c"}
)

const secret = "whsec_test"

// history is one run: the real store, the specification, and what was seen so far.
type history struct {
	t     *rapid.T
	ctx   context.Context
	store *redisstore.Store
	rdb   *redis.Client
	w     *world
	subs  []fsm.Subscription
	made  int // generations
	lives int // restarts of the store
	calls int
	// refs are the delivery attempts handed out so far, in order.
	refs []fsm.Wake
	// epochs and wakeIDs are what S1 and S2 are checked by; acked what S4 is.
	epochs  map[string]int64
	wakeIDs map[string]string
	acked   map[string]fsm.Offset
	// unsettled are streams whose tail was raised by something that wakes only one consumer.
	unsettled map[string]bool
	tokens    *fsm.Tokens
	// told are the ends of wakes that the store tells of by itself, over is what is known to be over.
	told []fsm.WakeEnd
	over map[string]bool
}

// TestScriptsDoWhatTheTransitionsSay is the property test of the state machine.
func TestScriptsDoWhatTheTransitionsSay(t *testing.T) {
	rdb := harness.StartRedis(t).Client()
	t.Logf("%s histories; -rapid.seed=%s repeats them", flag.Lookup("rapid.checks").Value, flag.Lookup("rapid.seed").Value)
	tokens, err := fsm.NewTokens(strings.Repeat("k", fsm.MinTokenKey))
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	defer func() { t.Logf("%d steps", steps) }()
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		if err := rdb.FlushDB(ctx).Err(); err != nil {
			rt.Fatal(err)
		}
		w := &world{
			now: time.UnixMilli(1_790_000_000_000), timing: timing, consumers: map[string]fsm.Consumer{},
			tails: map[string]fsm.Offset{}, dead: map[string]bool{}, life: "life 1",
		}
		h := &history{
			t: rt, ctx: ctx, rdb: rdb, w: w, tokens: tokens,
			epochs: map[string]int64{}, wakeIDs: map[string]string{}, acked: map[string]fsm.Offset{}, unsettled: map[string]bool{},
			over: map[string]bool{},
		}
		h.store = redisstore.New(rdb, redisstore.Options{
			Partitions: 1, Timing: timing, WakeEnded: func(ends []fsm.WakeEnd) { h.told = append(h.told, ends...) },
			Draw: func() redisstore.Draw {
				return redisstore.Draw{Now: w.now, Nonce: w.nonce, Jitter: w.jitter, Life: w.life}
			},
		})
		for _, id := range []string{"one", "two"} {
			h.subs = append(h.subs, h.subscription(id))
		}
		for range rapid.IntRange(1, 40).Draw(rt, "length") {
			h.step()
			steps++
		}
		h.converges()
	})
}

func (h *history) subscription(id string) fsm.Subscription {
	h.made++
	return fsm.Subscription{ID: id, Generation: fmt.Sprintf("g%d", h.made)}
}

func (h *history) pick(label string, from []string) string {
	return rapid.SampledFrom(from).Draw(h.t, label)
}

func (h *history) offset(label string) fsm.Offset { return rapid.SampledFrom(offsets).Draw(h.t, label) }

func (h *history) step() {
	h.newNonce()
	h.w.jitter = fsm.Jitter(rapid.IntRange(0, fsm.JitterSpan-1).Draw(h.t, "jitter"))
	kinds := map[string]func(){
		"observe": h.observe, "link": h.link, "due": h.due, "callback": h.callback, "answer": h.answer, "later": h.later,
		"hide": h.hide, "restart": h.restart, "deleted": h.deleted, "drop": h.drop, "resume": h.resume,
		"new life": h.newLife,
	}
	kind := h.pick("step", []string{
		"observe", "observe", "observe", "link", "link", "due", "due", "later", "callback", "callback", "callback", "callback",
		"answer", "answer", "answer", "hide", "restart", "deleted", "drop", "resume", "new life",
	})
	kinds[kind]()
	h.agree(kind)
}

// newNonce draws one that no other call had: with the same nonce, a call is the same one, sent again.
func (h *history) newNonce() {
	h.calls++
	h.w.nonce = fmt.Sprintf("n%d-%d", h.calls, rapid.IntRange(0, 1<<30).Draw(h.t, "nonce"))
}

func (h *history) must(err error) {
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) same(what string, got, want any) {
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		h.t.Fatalf("%s\n the scripts say: %s\n the transitions: %s", what, g, w)
	}
}

// outcome compares what a script and a transition ask their caller to do, and checks the wakes.
func (h *history) outcome(what string, got, want fsm.Outcome) {
	for _, o := range []*fsm.Outcome{&got, &want} {
		slices.SortFunc(o.Wakes, func(a, b fsm.Wake) int { return strings.Compare(a.Consumer, b.Consumer) })
		slices.Sort(o.Idle)
		slices.Sort(o.Hidden)
		slices.SortFunc(o.Ended, func(a, b fsm.WakeEnd) int { return strings.Compare(a.Consumer, b.Consumer) })
	}
	h.same(what, got, want)
	h.ended(what, got.Ended)
	for _, wake := range got.Wakes {
		h.refs = append(h.refs, wake)
		key := fmt.Sprintf("%s %d", wake.Consumer, wake.Epoch)
		id, again := h.wakeIDs[key]
		switch {
		case again && id != wake.WakeID:
			h.t.Fatalf("S2: wake %s has the ids %s and %s", key, id, wake.WakeID)
		case !again && wake.Epoch <= h.epochs[wake.Consumer]:
			h.t.Fatalf("S1: consumer %s got epoch %d after %d", wake.Consumer, wake.Epoch, h.epochs[wake.Consumer])
		}
		for other, id := range h.wakeIDs {
			if id == wake.WakeID && other != key {
				h.t.Fatalf("S2: wakes %s and %s share the id %s", key, other, id)
			}
		}
		h.wakeIDs[key] = wake.WakeID
		h.epochs[wake.Consumer] = wake.Epoch
		// A retry goes on until somebody claims the wake, even if all was acked without claiming meanwhile.
		if retried := what == "due" || what == "begin"; !retried && len(wake.Triggered()) == 0 {
			h.t.Fatalf("wake %s was handed out with nothing pending: %+v", key, wake)
		}
		token := h.tokens.Mint(wake.Consumer, wake.Generation, wake.Epoch, h.w.now)
		body, err := dispatcher.EncodePayload(wake, "http://reveille.test", token)
		h.must(err)
		header := dispatcher.Sign(secret, h.w.now, body)
		if err := dispatcher.Verify(secret, header, body, h.w.now, dispatcher.SignatureTolerance); err != nil {
			h.t.Fatalf("S8: %v", err)
		}
	}
}

// ended holds that a wake is over once.
func (h *history) ended(what string, ends []fsm.WakeEnd) {
	for _, e := range ends {
		key := fmt.Sprintf("%s %d", e.Consumer, e.Epoch)
		if h.over[key] {
			h.t.Fatalf("%s: wake %s is over a second time: %+v", what, key, e)
		}
		h.over[key] = true
	}
}

// silently is for a transition whose outcome nobody gets: the store tells of the wakes that it ended.
func (h *history) silently(what string, want fsm.Outcome) {
	h.outcome(what, fsm.Outcome{Ended: h.told}, fsm.Outcome{Ended: want.Ended})
	h.told = nil
}

func (h *history) later() {
	h.w.now = h.w.now.Add(rapid.SampledFrom([]time.Duration{
		time.Millisecond, time.Second, 10 * time.Second, 31 * time.Second, 45 * time.Second, 2 * time.Minute, time.Hour, 73 * time.Hour,
	}).Draw(h.t, "later"))
}

// newLife is a restart of the store: what it may have lost must not be handed out again.
func (h *history) newLife() {
	h.lives++
	h.w.life = fmt.Sprintf("life %d", h.lives+1)
}

func (h *history) link() {
	sub := rapid.SampledFrom(h.subs).Draw(h.t, "subscription")
	path, tail := h.pick("path", primaries), h.offset("tail")
	acked := rapid.SampledFrom([]fsm.Offset{fsm.Start, tail}).Draw(h.t, "acked")
	got, err := h.store.Link(h.ctx, sub, path, acked, tail)
	h.must(err)
	h.outcome("link", got, h.w.link(sub, path, acked, tail))
	h.unsettled[path] = true
}

func (h *history) observe() {
	path, tail := h.pick("path", paths), h.offset("tail")
	got, err := h.store.Observe(h.ctx, 0, path, tail)
	h.must(err)
	want := h.w.observe(path, tail)
	h.outcome("observe", got.Outcome, want.Outcome)
	got.Outcome, want.Outcome = fsm.Outcome{}, fsm.Outcome{}
	h.same("observation of "+path, got, want)
	delete(h.unsettled, path)
}

func (h *history) hide() {
	path := h.pick("path", paths)
	a := rapid.SampledFrom([]fsm.Absence{fsm.Missing, fsm.MissingAnew, fsm.MissingStill, fsm.MissingStill}).Draw(h.t, "absence")
	got, err := h.store.Hide(h.ctx, path, a)
	h.must(err)
	out, want := h.w.hide(path, a)
	h.same("hide", got, want)
	h.silently("hide", out)
}

func (h *history) restart() {
	path, tail := h.pick("path", paths), h.offset("tail")
	was := rapid.SampledFrom([]fsm.Offset{h.w.tails[path], "0001"}).Draw(h.t, "was")
	got, err := h.store.Restart(h.ctx, 0, path, was, tail)
	h.must(err)
	h.outcome("restart", got, h.w.restart(path, was, tail))
	h.forgetAcks(path)
}

func (h *history) deleted() {
	path := h.pick("path", paths)
	got, err := h.store.Deleted(h.ctx, 0, path)
	h.must(err)
	h.outcome("deleted", got, h.w.deleted(path))
	h.forgetAcks(path)
}

// forgetAcks is for a stream that was made anew: S4 holds for each life of it.
func (h *history) forgetAcks(path string) {
	for key := range h.acked {
		if strings.HasSuffix(key, " "+path) {
			delete(h.acked, key)
		}
	}
}

func (h *history) drop() {
	i := rapid.IntRange(0, len(h.subs)-1).Draw(h.t, "subscription")
	sub := h.subs[i]
	h.must(h.rdb.HSet(h.ctx, "rv:{subs}:dropping", sub.Generation, sub.ID).Err())
	h.must(h.store.DeleteSubscription(h.ctx, sub.ID))
	h.silently("drop", h.w.drop(sub))
	h.subs[i] = h.subscription(sub.ID)
}

func (h *history) resume() {
	sub := rapid.SampledFrom(h.subs).Draw(h.t, "subscription")
	h.store.Catalog().Replace([]fsm.Subscription{{ID: sub.ID, Generation: sub.Generation, Pattern: "/**"}}, 0)
	h.must(h.store.ResumeSubscription(h.ctx, sub.ID))
	for _, id := range h.w.ids() {
		if c := h.w.consumers[id]; c.Generation == sub.Generation {
			h.w.consumers[id] = c.Resume(h.w.env(id))
		}
	}
}

func (h *history) due() {
	if rapid.Bool().Draw(h.t, "at the deadline") {
		var next time.Time
		for _, c := range h.w.consumers {
			if !c.Deadline.IsZero() && (next.IsZero() || c.Deadline.Before(next)) {
				next = c.Deadline
			}
		}
		if next.After(h.w.now) {
			h.w.now = next
		}
	}
	got, n, err := h.store.Due(h.ctx, 0, 100)
	h.must(err)
	want, m := h.w.due()
	h.same("how many are due", n, m)
	h.outcome("due", got, want)
}

// ref is a delivery attempt from the history, mostly the latest, sometimes with a part of another.
func (h *history) ref() fsm.Wake {
	if len(h.refs) == 0 {
		return fsm.Wake{Consumer: "one:%2Fa", Primary: "/a", Epoch: 1, WakeID: "w_none", Attempt: 1}
	}
	i := len(h.refs) - 1 - min(len(h.refs)-1, rapid.SampledFrom([]int{0, 0, 0, 0, 1, 1, 2, 3, 8}).Draw(h.t, "back"))
	wake := h.refs[i]
	switch rapid.IntRange(0, 15).Draw(h.t, "twist") {
	case 0:
		wake.Epoch--
	case 1:
		wake.WakeID = "w_other"
	case 2:
		wake.Attempt++
	}
	return wake
}

func (h *history) answer() {
	wake := h.ref()
	r := wake.Ref()
	switch kind := h.pick("answer", []string{"fail", "fail", "retired", "park", "begin", "accept", "finish", "finish"}); kind {
	case "fail", "retired":
		wait := rapid.SampledFrom([]time.Duration{0, 0, time.Minute, 5 * time.Hour}).Draw(h.t, "retry after")
		f := fsm.Failure{RetryAfter: wait, Retired: kind == "retired", Reason: h.pick("reason", []string{"status 503", "connection refused"})}
		got, err := h.store.Fail(h.ctx, r, f)
		h.must(err)
		h.outcome(kind, got, h.w.transition(r.Consumer, func(c fsm.Consumer, e fsm.Env) (fsm.Consumer, fsm.Effects) {
			return c.Fail(e, r, f)
		}))
	case "park":
		wait := rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(h.t, "parked for")
		h.must(h.store.Park(h.ctx, r, wait))
		h.w.transition(r.Consumer, func(c fsm.Consumer, e fsm.Env) (fsm.Consumer, fsm.Effects) { return c.Park(e, r, wait), fsm.Effects{} })
	case "begin":
		got, err := h.store.Begin(h.ctx, r)
		h.must(err)
		h.outcome(kind, got, h.w.transition(r.Consumer, func(c fsm.Consumer, e fsm.Env) (fsm.Consumer, fsm.Effects) { return c.Begin(e, r) }))
	case "accept":
		h.must(h.store.Accept(h.ctx, r))
		h.w.transition(r.Consumer, func(c fsm.Consumer, e fsm.Env) (fsm.Consumer, fsm.Effects) { return c.Accept(e, r), fsm.Effects{} })
	case "finish":
		got, err := h.store.Finish(h.ctx, r, wake.Streams)
		h.must(err)
		h.outcome(kind, got, h.w.transition(r.Consumer, func(c fsm.Consumer, e fsm.Env) (fsm.Consumer, fsm.Effects) {
			return c.Finish(e, r, wake.Streams)
		}))
	}
}

func (h *history) callback() {
	wake := h.ref()
	cb := fsm.Callback{
		Consumer: wake.Consumer, Primary: wake.Primary, Generation: wake.Generation, Epoch: wake.Epoch, TokenEpoch: wake.Epoch,
		TokenExpired: rapid.IntRange(0, 11).Draw(h.t, "token") == 0, Done: rapid.Bool().Draw(h.t, "done"), MaxStreams: 2,
		Tails: map[string]fsm.Offset{},
	}
	if rapid.IntRange(0, 11).Draw(h.t, "token's epoch") == 0 {
		cb.TokenEpoch--
	}
	if rapid.Bool().Draw(h.t, "claim") {
		cb.WakeID = wake.WakeID
	}
	for range rapid.IntRange(0, 2).Draw(h.t, "acks") {
		path := h.pick("ack", paths)
		to := h.offset("to")
		if tail := h.w.tails[path]; tail != "" && rapid.Bool().Draw(h.t, "the tail") {
			to = tail
		}
		cb.Acks = append(cb.Acks, fsm.Ack{Path: path, Offset: to})
	}
	if rapid.IntRange(0, 3).Draw(h.t, "tails") == 0 {
		cb.Tails[h.pick("asked", paths)] = h.offset("tail")
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(h.t, "subscribe") {
		s := fsm.Subscribe{Path: h.pick("to subscribe", paths), From: fsm.Start}
		if tail, asked := cb.Tails[s.Path]; asked {
			s.From = tail
		}
		cb.Subscribe = append(cb.Subscribe, s)
	}
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(h.t, "unsubscribe") {
		cb.Unsubscribe = append(cb.Unsubscribe, h.pick("to unsubscribe", paths))
	}
	before, alive := h.w.alive(cb.Consumer)
	got, err := h.store.Callback(h.ctx, cb)
	h.must(err)
	want := h.w.callback(cb)
	h.outcome("callback", got.Outcome, want.Outcome)
	got.Outcome, want.Outcome = fsm.Outcome{}, fsm.Outcome{}
	// The tails are the store's own affair.
	for _, streams := range [][]fsm.StreamTail{got.Streams, want.Streams} {
		for i := range streams {
			streams[i].Tail = ""
		}
	}
	h.same(fmt.Sprintf("reply to %+v", cb), got, want)
	for path := range cb.Tails {
		h.unsettled[path] = true
	}
	for _, s := range cb.Subscribe {
		h.unsettled[s.Path] = true
	}
	h.judged(cb, before, alive, got)
}

// judged checks the invariants that are about what a callback is answered.
func (h *history) judged(cb fsm.Callback, before fsm.Consumer, alive bool, got fsm.CallbackReply) {
	// A consumer that was never woken has given nobody a token, so the callback is of an earlier one of the same ID.
	visible := alive && before.HiddenAt.IsZero() && before.Generation == cb.Generation && before.WakeID != ""
	switch {
	case !visible && got.Code != fsm.CodeConsumerGone:
		h.t.Fatalf("S7: the consumer is gone, the callback got %q", got.Code)
	case visible && !cb.TokenExpired && cb.Epoch < before.Epoch && got.Code != fsm.CodeStaleEpoch:
		h.t.Fatalf("S6: epoch %d is stale (now %d), the callback got %q", cb.Epoch, before.Epoch, got.Code)
	}
	current := visible && !cb.TokenExpired && cb.Epoch == before.Epoch && cb.TokenEpoch == before.Epoch
	plain := len(cb.Acks) == 0 && len(cb.Subscribe) == 0
	if current && plain && cb.WakeID != "" {
		if ok := got.Code == ""; ok != (cb.WakeID == before.WakeID) {
			h.t.Fatalf("S3: wake id %s, current %s, answered %q", cb.WakeID, before.WakeID, got.Code)
		}
	}
	if got.Code == "" {
		token, err := h.tokens.Parse(h.tokens.Mint(cb.Consumer, cb.Generation, cb.Epoch, h.w.now))
		if err != nil || token.Consumer != cb.Consumer || token.Epoch != cb.Epoch {
			h.t.Fatalf("S5: a token for %s epoch %d reads as %+v (%v)", cb.Consumer, cb.Epoch, token, err)
		}
	}
	after, still := h.w.alive(cb.Consumer)
	if got.Code != "" || !cb.Done || !still || before.State == fsm.Idle {
		return
	}
	switch pending := after.Pending(); {
	case !pending && after.State != fsm.Idle:
		h.t.Fatalf("L2: done with nothing pending left the consumer %s", after.State)
	case pending && (after.State != fsm.Waking || after.Epoch <= before.Epoch):
		h.t.Fatalf("L3: done with work pending left the consumer %s in epoch %d after %d", after.State, after.Epoch, before.Epoch)
	}
}

// agree compares all of the state and checks the invariants that hold at any moment.
func (h *history) agree(kind string) {
	h.forgetUnlinked()
	for _, sub := range []string{"one", "two"} {
		for _, path := range primaries {
			id := fsm.ConsumerID(sub, path)
			got, err := h.store.Consumer(h.ctx, id, path)
			want, alive := h.w.alive(id)
			if errors.Is(err, fsm.ErrNotFound) {
				if alive {
					h.t.Fatalf("after %s: the store has no consumer %s, the transitions have %+v", kind, id, want)
				}
				continue
			}
			h.must(err)
			if !alive {
				h.t.Fatalf("after %s: the store has a consumer that the transitions have not: %+v", kind, got)
			}
			h.same("after "+kind+": consumer "+id, got, want)
			h.sound(got)
		}
	}
	h.listed(kind)
}

// listed checks that the lists of the consumers by state hold those that are in it, since a time that can be.
func (h *history) listed(kind string) {
	want := map[string][]string{"waiting": {}, "retired": {}, "live": {}}
	for _, id := range h.w.ids() {
		switch c := h.w.consumers[id]; {
		case c.State == fsm.Live:
			want["live"] = append(want["live"], id)
		case c.State == fsm.Waking && c.Retired:
			want["retired"] = append(want["retired"], id)
		case c.State == fsm.Waking:
			want["waiting"] = append(want["waiting"], id)
		}
	}
	for list, ids := range want {
		found, err := h.rdb.ZRangeWithScores(h.ctx, "rv:{0}:"+list, 0, -1).Result()
		h.must(err)
		got := []string{}
		for _, z := range found {
			id, _ := z.Member.(string)
			got = append(got, id)
			c, since := h.w.consumers[id], time.UnixMilli(int64(z.Score))
			// A wake that another life of the store has made anew has waited for longer than that.
			if since.After(h.w.now) || h.lives == 0 && since.Before(c.WokeAt) {
				h.t.Fatalf("after %s: %s is %s since %s, woken at %s, now %s", kind, id, list, since, c.WokeAt, h.w.now)
			}
		}
		slices.Sort(got)
		h.same("after "+kind+": who is "+list, got, ids)
	}
}

func (h *history) sound(c fsm.Consumer) {
	settled := true
	for path, l := range c.Links {
		key := ackKey(c, path)
		if before, ok := h.acked[key]; ok && before.After(l.Acked) {
			h.t.Fatalf("S4: acked offset of %s fell from %s to %s", key, before, l.Acked)
		}
		h.acked[key] = l.Acked
		settled = settled && !h.unsettled[path]
		if l.Acked.After(l.Tail) {
			h.t.Fatalf("L1: %s was acked up to %s, beyond the tail %q: what comes until then would wake nobody", key, l.Acked, l.Tail)
		}
	}
	switch {
	case settled && c.State == fsm.Idle && c.HiddenAt.IsZero() && c.Pending():
		h.t.Fatalf("L1: consumer %s is idle with work pending: %+v", c.ID, c)
	case c.State != fsm.Idle && c.Deadline.IsZero():
		h.t.Fatalf("consumer %s waits for nothing: %+v", c.ID, c)
	}
}

func ackKey(c fsm.Consumer, path string) string { return c.ID + " " + c.Generation + " " + path }

// forgetUnlinked is for streams that a consumer unsubscribed from, or that were another consumer's of the same id: when it
// subscribes again it starts wherever the stream ends then.
func (h *history) forgetUnlinked() {
	linked := map[string]bool{}
	for _, c := range h.w.consumers {
		for path := range c.Links {
			linked[ackKey(c, path)] = true
		}
	}
	for key := range h.acked {
		if !linked[key] {
			delete(h.acked, key)
		}
	}
}

// converges lets the world be quiet and every endpoint work: all consumers must come to rest with everything acked (L1).
func (h *history) converges() {
	for _, path := range paths {
		if tail := h.w.tails[path]; tail != "" {
			h.newNonce()
			got, err := h.store.Observe(h.ctx, 0, path, tail)
			h.must(err)
			h.outcome("last look", got.Outcome, h.w.observe(path, tail).Outcome)
			delete(h.unsettled, path)
		}
	}
	for range 60 {
		h.newNonce()
		h.resume()
		from := len(h.refs)
		h.due()
		for _, wake := range h.refs[from:] {
			h.w.nonce += "x"
			got, err := h.store.Finish(h.ctx, wake.Ref(), wake.Streams)
			h.must(err)
			h.outcome("last answer", got, h.w.transition(wake.Consumer, func(c fsm.Consumer, e fsm.Env) (fsm.Consumer, fsm.Effects) {
				return c.Finish(e, wake.Ref(), wake.Streams)
			}))
		}
		h.w.now = h.w.now.Add(time.Minute)
	}
	h.agree("the end")
	for _, id := range h.w.ids() {
		if c, alive := h.w.alive(id); alive && c.State != fsm.Idle {
			h.t.Fatalf("L1: consumer %s never came to rest: %+v", id, c)
		}
	}
	for _, wake := range h.refs {
		if !h.over[fmt.Sprintf("%s %d", wake.Consumer, wake.Epoch)] {
			h.t.Fatalf("nobody was told that a wake is over: %+v", wake)
		}
	}
}
