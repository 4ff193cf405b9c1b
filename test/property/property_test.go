// Package property runs the pure transitions of fsm/spec (in fsm/spec/memstore) and the Lua scripts of redisstore side
// by side on random histories, and checks on each that they agree after every step and that the webhook spec's
// invariants hold.
package property

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/spec"
	"reveille/fsm/spec/memstore"
	"reveille/fsm/token"
	"reveille/redisstore"
	"reveille/test/harness"
)

// histories is how many the test runs unless -rapid.checks says otherwise; shortHistories in the short form, of which
// rapid runs a fifth.
const histories, shortHistories = "2000", "1000"

// manyHistories come upon everything that counts has, each at least some thirty times.
const manyHistories = 1000

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		n := histories
		if testing.Short() {
			n = shortHistories
		}
		_ = f.Value.Set(n)
	}
	// Drawn here rather than by rapid, so that it can be printed whatever the outcome.
	if f := flag.Lookup("rapid.seed"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.FormatUint(rand.Uint64()|1, 10))
	}
	os.Exit(m.Run())
}

var timing = fsm.Timing{
	Waking: 10 * time.Second, Request: 30 * time.Second, Liveness: 45 * time.Second, GoneGrace: 30 * time.Second,
	// Short, so that many consumers are given up: time in which nobody acts on a deadline does not count.
	GCAfter: 500 * time.Millisecond,
}

// The offsets of the histories in their order, byte by byte: no locale sorts them so. The last are of two incarnations
// of a stream, which do not compare.
var offsets = []fsm.Offset{
	"0000", "0000_1", "0001", "10", "9", "A", "Z", "_", "a", "a 7", "b", "~",
	"x/1 1", "x/2 2", "x/3 3", "y/1 1", "y/2 2", "y/3 3",
}

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
	// spec is the specification's side, and what it tells of in place of told.
	spec     *memstore.Store
	db       *memstore.DB
	specTold fsm.Outcome
	// draw is what both sides get of chance and time.
	draw memstore.Draw
	rdb  *redis.Client
	subs []fsm.Subscription
	made int // generations
	// former are subscriptions that were deleted, the latest by id, early is a version of the list from before that.
	former    map[string]fsm.Subscription
	early     int64
	failovers int // of the store
	calls     int
	// refs are the delivery attempts handed out so far, in order.
	refs []fsm.Delivery
	// epochs and wakeIDs are what S1 and S2 are checked by; acked what S4 is.
	epochs  map[string]int64
	wakeIDs map[string]string
	acked   map[string]fsm.Offset
	// read are the epochs, by consumer and stream, whose workers may have read what was there before the stream was
	// deleted or made anew.
	read map[string]int64
	// unsettled are streams whose tail was raised by something that wakes only one consumer.
	unsettled map[string]bool
	tokens    *token.Tokens
	// told is what the store has done by itself, over are the wakes that are known to be over.
	told fsm.Outcome
	over map[string]bool
	// sent is when a consumer's last attempt was handed out, attempts which it was; away are those that were given up
	// and were not woken since.
	sent     map[string]time.Time
	attempts map[string]int
	away     map[string]bool
	// hunting has what is found be told by a panic: it is looked for.
	hunting bool
	// aside has failed deliveries of ModePush step aside. It is no draw of the histories that are looked through, so
	// that they stay what they are.
	aside bool
	// lost has streams go, and consumers go on that were given up: both leave dead letters.
	lost bool
	// kinds are the steps that the history may have.
	kinds    []step
	cameUpon *counts
}

// TestScriptsDoWhatTheTransitionsSay is the property test of the state machine.
func TestScriptsDoWhatTheTransitionsSay(t *testing.T) {
	rdb := harness.StartRedis(t).Client()
	t.Logf("-rapid.seed=%s repeats the histories", flag.Lookup("rapid.seed").Value)
	tokens, err := token.New(strings.Repeat("k", token.MinKey))
	if err != nil {
		t.Fatal(err)
	}
	steps, counted := 0, counts{}
	defer func() { t.Logf("%d steps, %+v", steps, counted) }()
	rapid.Check(t, func(rt *rapid.T) {
		aside := rapid.Bool().Draw(rt, "failed deliveries step aside")
		h := newHistory(t.Context(), rt, rdb, tokens, aside)
		h.lost, h.cameUpon = rapid.Bool().Draw(rt, "much is lost"), &counted
		steps += h.play()
	})
	n, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	if testing.Short() || err != nil || n < manyHistories {
		return
	}
	of := reflect.ValueOf(counted)
	for i := range of.NumField() {
		if of.Field(i).Int() == 0 {
			t.Errorf("%s is 0: the histories never came upon it", of.Type().Field(i).Name)
		}
	}
}

// newHistory prepares both sides for a history.
func newHistory(
	ctx context.Context, rt *rapid.T, rdb *redis.Client, tokens *token.Tokens, aside bool,
) *history {
	if err := rdb.FlushDB(ctx).Err(); err != nil {
		rt.Fatal(err)
	}
	h := &history{
		t: rt, ctx: ctx, rdb: rdb, tokens: tokens, aside: aside,
		draw:   memstore.Draw{Now: time.UnixMilli(1_790_000_000_000), Incarnation: "incarnation 1"},
		epochs: map[string]int64{}, wakeIDs: map[string]string{}, acked: map[string]fsm.Offset{},
		read: map[string]int64{}, unsettled: map[string]bool{},
		over: map[string]bool{}, sent: map[string]time.Time{}, attempts: map[string]int{}, away: map[string]bool{},
		former: map[string]fsm.Subscription{}, cameUpon: new(counts),
	}
	collect := func(in *fsm.Outcome) *router.Router {
		return router.New(router.Observer{Transition: func(o fsm.Outcome, _ fsm.Sighting) { in.Add(o) }})
	}
	h.store = redisstore.New(rdb, redisstore.Options{
		Partitions: 1, Timing: timing, Outcomes: collect(&h.told),
		Draw: func() redisstore.Draw {
			return redisstore.Draw(h.draw)
		},
	})
	h.store.Ownership().Replace([]int{0})
	h.db = memstore.New(memstore.Options{
		Timing: timing, Outcomes: collect(&h.specTold),
		Draw: func() memstore.Draw { return h.draw },
	})
	h.spec = h.db.Replica("specification")
	for _, id := range []string{"one", "two"} {
		h.subs = append(h.subs, h.subscription(id))
	}
	h.early = h.version()
	return h
}

// play draws the steps of the history and makes them. It returns how many there were.
func (h *history) play() (steps int) {
	h.kinds = h.drawKinds()
	steps = 1 + h.evenly("length", 40)
	for range steps {
		h.step()
	}
	h.converges()
	h.counted()
	return steps
}

// counted checks the numbers that the scripts keep of what they could count.
func (h *history) counted() {
	const P = "rv:{0}:"
	dropping, err := h.rdb.HGet(h.ctx, P+"meta", "dropping").Int64()
	if errors.Is(err, redis.Nil) {
		dropping, err = 0, nil
	}
	h.must(err)
	there, err := h.rdb.HLen(h.ctx, P+"dropping").Result()
	h.must(err)
	h.same("at the end: deleted subscriptions that have something left", dropping, there)
	records, err := h.rdb.Keys(h.ctx, P+"c:*").Result()
	h.must(err)
	for _, key := range records {
		record, err := h.rdb.Get(h.ctx, key).Result()
		h.must(err)
		links, err := h.rdb.HLen(h.ctx, P+"l:"+strings.TrimPrefix(key, P+"c:")).Result()
		h.must(err)
		_, record, _ = strings.Cut(record, "\n")
		trouble, _, _ := strings.Cut(record, "\n")
		more := trouble[strings.LastIndex(trouble, " ")+1:]
		h.same("at the end: links of "+key+" beside its primary", cmp.Or(more, "0"), strconv.FormatInt(links, 10))
	}
}

func (h *history) subscription(id string) fsm.Subscription {
	h.made++
	sub := fsm.Subscription{ID: id, Generation: fmt.Sprintf("g%d", h.made), Pattern: "/**"}
	sub.Webhook = []string{
		"https://example.com/", "https://EXAMPLE.com.:443/", "https://example.com/", "https://example.net/",
	}[h.made%4]
	switch h.pick("kind of "+id, []string{"plain", "plain", "push", "retry"}) {
	case "push":
		sub.Mode, sub.Retry = fsm.ModePush, []time.Duration{time.Second}
		if h.aside {
			sub.Ordering = fsm.OrderingNone
		}
	case "retry":
		sub.Retry = []time.Duration{2 * time.Second}
	}
	sub = sub.WithDefaults()
	h.db.PutSubscription(sub)
	_, _, err := h.store.CreateSubscription(h.ctx, sub)
	h.must(err)
	return sub
}

// version is that of the list of subscriptions, in the real store.
func (h *history) version() int64 {
	version, err := h.store.Version(h.ctx)
	h.must(err)
	return version
}

// alive returns the specification's consumer unless its subscription was deleted.
func (h *history) alive(id string) (fsm.Consumer, bool) {
	_, path, _ := fsm.ParseConsumerID(id)
	c, err := h.spec.Consumer(h.ctx, fsm.ConsumerRef{ID: id, Home: path})
	return c, err == nil
}

// tail is what the specification has noted of a stream.
func (h *history) tail(path string) fsm.Offset { return h.db.Tail(primaries[0], path) }

func (h *history) pick(label string, from []string) string {
	return rapid.SampledFrom(from).Draw(h.t, label)
}

func (h *history) offset(label string) fsm.Offset { return rapid.SampledFrom(offsets).Draw(h.t, label) }

// evenly draws a number below n. All are alike, while rapid itself draws small ones more often.
func (h *history) evenly(label string, n int) (number int) {
	for _, bit := range rapid.SliceOfN(rapid.Bool(), 12, 12).Draw(h.t, label) {
		number *= 2
		if bit {
			number++
		}
	}
	return number % n
}

// step is one kind of step. Its weight says how often it is drawn.
type step struct {
	name   string
	weight int
	do     func()
}

// drawKinds draws the steps that a history may have. Every other one lacks about half of them: what needs many of one
// kind comes up there.
func (h *history) drawKinds() (kinds []step) {
	all := []step{
		{"observe", 3, h.observe},
		{"link", 2, h.link},
		{"note", 1, h.note},
		{"forget", 1, h.forget},
		{"due", 2, h.due},
		{"later", 1, h.later},
		{"callback", 4, h.callback},
		{"answer", 3, h.answer},
		{"worker", 2, h.worker},
		{"hide", 2, h.hide},
		{"restart", 1, h.restart},
		{"deleted", 1, h.deleted},
		{"drop", 1, h.drop},
		{"resume", 1, h.resume},
		{"rewind", 1, h.rewind},
		{"fail over", 1, h.failOver},
		{"fails", 2, h.fails},
		{"late", 1, h.late},
		{"endpoint", 1, h.endpoint},
		{"release", 1, h.flaps},
	}
	if h.aside {
		all = append(all, step{"push", 3, h.push}, step{"aside waits", 2, h.asideWaits},
			step{"drop letters", 1, h.dropLetters}, step{"nudged push", 1, h.nudgedPush}, step{"replay", 2, h.replay},
			step{"span", 1, h.replaySpan}, step{"cancel replays", 1, h.cancelReplays})
	}
	if h.lost {
		all = append(all, step{"goes", 3, h.goes}, step{"goes on", 3, h.goesOn})
	}
	some := rapid.Bool().Draw(h.t, "only some kinds of steps")
	for _, s := range all {
		if !some || s.name == "observe" || s.name == "link" || rapid.Bool().Draw(h.t, s.name) {
			kinds = append(kinds, s)
		}
	}
	return kinds
}

func (h *history) step() {
	h.newNonce()
	h.draw.Jitter = fsm.Jitter(rapid.IntRange(0, fsm.JitterSpan-1).Draw(h.t, "jitter"))
	weights := 0
	for _, s := range h.kinds {
		weights += s.weight
	}
	at := h.evenly("step", weights)
	for _, s := range h.kinds {
		if at -= s.weight; at < 0 {
			s.do()
			h.agree(s.name)
			return
		}
	}
}

// newNonce draws one that no other call had: with the same nonce, a call is the same one, sent again.
func (h *history) newNonce() {
	h.calls++
	h.draw.Nonce = fmt.Sprintf("n%d-%d", h.calls, rapid.IntRange(0, 1<<30).Draw(h.t, "nonce"))
}

// must ends the history if a call failed, which is no disagreement.
func (h *history) must(err error) {
	switch {
	case err != nil && h.hunting:
		panic(failure{err})
	case err != nil:
		h.t.Fatal(err)
	}
}

// fail ends the history: the two sides disagree, or an invariant does not hold.
func (h *history) fail(format string, args ...any) {
	if h.hunting {
		panic(disagreement(fmt.Sprintf(format, args...)))
	}
	h.t.Fatalf(format, args...)
}

func (h *history) same(what string, got, want any) {
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		h.fail("%s\n the scripts say: %s\n the transitions: %s", what, g, w)
	}
}

// outcome compares what a script and a transition ask their caller to do, and checks the wakes.
func (h *history) outcome(what string, got, want fsm.Outcome) {
	for _, o := range []*fsm.Outcome{&got, &want} {
		for i := range o.Deliveries { // that is of this process's clock
			o.Deliveries[i].Asked = time.Time{}
		}
		slices.SortFunc(o.Deliveries, func(a, b fsm.Delivery) int { return strings.Compare(a.Consumer, b.Consumer) })
		slices.Sort(o.Idle)
		slices.Sort(o.Hidden)
		slices.SortFunc(o.Removed, func(a, b fsm.Removal) int { return strings.Compare(a.Consumer, b.Consumer) })
		slices.SortFunc(o.Left, func(a, b fsm.Left) int { return strings.Compare(a.Subscription, b.Subscription) })
		slices.SortFunc(o.Ended, func(a, b fsm.WakeEnd) int { return strings.Compare(a.Consumer, b.Consumer) })
	}
	h.same(what, got, want)
	h.ended(what, got.Ended)
	for _, g := range got.Removed {
		if g.Cause == fsm.RemovedGivenUp {
			h.givenUp(what, g)
		}
	}
	for _, wake := range got.Deliveries {
		h.sent[wake.Consumer], h.attempts[wake.Consumer] = h.draw.Now, wake.Attempt
		if h.away[wake.Consumer] {
			delete(h.away, wake.Consumer)
			h.cameUpon.madeAgain++
		}
		h.refs = append(h.refs, wake)
		key := fmt.Sprintf("%s %d", wake.Consumer, wake.Epoch)
		id, again := h.wakeIDs[key]
		switch {
		case again && id != wake.WakeID:
			h.fail("S2: wake %s has the ids %s and %s", key, id, wake.WakeID)
		case !again && wake.Epoch <= h.epochs[wake.Consumer]:
			h.fail("S1: consumer %s got epoch %d after %d", wake.Consumer, wake.Epoch, h.epochs[wake.Consumer])
		}
		for other, id := range h.wakeIDs {
			if id == wake.WakeID && other != key {
				h.fail("S2: wakes %s and %s share the id %s", key, other, id)
			}
		}
		h.wakeIDs[key] = wake.WakeID
		h.epochs[wake.Consumer] = wake.Epoch
		// A retry goes on until somebody claims the wake, even if all was acked without claiming meanwhile.
		if retried := what == "due" || what == "begin"; !retried && len(wake.Triggered()) == 0 {
			h.fail("wake %s was handed out with nothing pending: %+v", key, wake)
		}
		token := h.tokens.Mint(wake.Consumer, wake.Generation, wake.Epoch, h.draw.Now)
		f, err := format.Of(fsm.Subscription{ID: wake.Subscription}.WithDefaults())
		h.must(err)
		header, body, err := f.Request(format.Content{
			Delivery: wake, PublicURL: "http://reveille.test", Token: token, Secret: secret, At: h.draw.Now,
		})
		h.must(err)
		signature := header.Get(format.SignatureHeader)
		if e := format.Examine(secret, signature, body, h.draw.Now, format.SignatureTolerance); !e.OK() {
			h.fail("S8: %+v", e)
		}
	}
}

// counts are how often histories came upon what they must come upon. These are consumers given up (lastOnes by a last
// attempt), consumers woken again after that, deliveries, looks at asides, and consumers rewound.
type counts struct{ givenUp, lastOnes, madeAgain, delivered, asides, rewound int }

// givenUp holds that no consumer is given up but by the failure of its last attempt (fsm.Profile), or of one that was
// made past the limit (D9).
func (h *history) givenUp(what string, g fsm.Removal) {
	h.cameUpon.givenUp++
	h.away[g.Consumer] = true
	c, there := h.db.Consumer(g.Consumer)
	if delays := len(c.Profile.Delays); delays > 0 {
		h.cameUpon.lastOnes++
		if c.Profile.Lasting || h.attempts[g.Consumer] <= delays {
			h.fail("%s: given up after attempt %d: %+v", what, h.attempts[g.Consumer], c)
		}
		return
	}
	limit := c.FirstFailure.Add(timing.GCAfter)
	if !there || c.State != fsm.GivenUp || h.sent[g.Consumer].Before(limit) {
		h.fail("%s: given up after an attempt made at %s, the limit was %s: %+v", what, h.sent[g.Consumer], limit,
			c)
	}
}

// ended holds that a wake is over once.
func (h *history) ended(what string, ends []fsm.WakeEnd) {
	for _, e := range ends {
		key := fmt.Sprintf("%s %d", e.Consumer, e.Epoch)
		if h.over[key] {
			h.fail("%s: wake %s is over a second time: %+v", what, key, e)
		}
		h.over[key] = true
	}
}

func (h *history) later() {
	h.draw.Now = h.draw.Now.Add(rapid.SampledFrom([]time.Duration{
		time.Millisecond, time.Second, 10 * time.Second, 31 * time.Second, 45 * time.Second, 2 * time.Minute, time.Hour,
		73 * time.Hour,
	}).Draw(h.t, "later"))
}

// failOver begins another incarnation of the store: what it may have lost must not be handed out again.
func (h *history) failOver() {
	h.failovers++
	h.draw.Incarnation = fmt.Sprintf("incarnation %d", h.failovers+1)
	h.newNonce()
	got, err := h.store.ResumeLost(h.ctx, 0)
	h.must(err)
	want, err := h.spec.ResumeLost(h.ctx, 0)
	h.must(err)
	h.outcome("resume after a loss", got, want)
}

// link links a stream as discovery does, sometimes with the stamp of a moment ago, or by a list of subscriptions from
// before the latest deletions.
func (h *history) link() {
	path, tail := h.pick("path", primaries), h.offset("tail")
	stream := h.streamAt(path)
	if !stream.Found() {
		stream = h.noteAs(path, fsm.NewStream(path, ""))
	}
	l := fsm.Linking{Stamp: h.stamp(stream), Tail: tail, Version: h.version(), Look: time.Hour}
	late := rapid.IntRange(0, 3).Draw(h.t, "by a list of before") == 0
	if late {
		l.Version = h.early
	}
	for _, sub := range h.subs[:rapid.IntRange(0, len(h.subs)).Draw(h.t, "subscriptions")] {
		if was, there := h.former[sub.ID]; late && there && rapid.Bool().Draw(h.t, "which was deleted") {
			sub = was
		}
		acked := rapid.SampledFrom([]fsm.Offset{fsm.Start, tail}).Draw(h.t, "acked")
		l.Links = append(l.Links, fsm.NewLink{Subscription: sub, Acked: acked})
	}
	h.newNonce()
	got, err := h.store.LinkStream(h.ctx, path, l)
	h.must(err)
	want, err := h.spec.LinkStream(h.ctx, path, l)
	h.must(err)
	h.outcome("link", got.Outcome, want.Outcome)
	got.Outcome, want.Outcome = fsm.Outcome{}, fsm.Outcome{}
	h.same("link of "+path, got, want)
	h.unsettled[path] = true
}

// streamAt reads a stream's record.
func (h *history) streamAt(path string) fsm.Stream {
	h.newNonce()
	got, err := h.store.Stream(h.ctx, path)
	h.must(err)
	want, err := h.spec.Stream(h.ctx, path)
	h.must(err)
	h.same("record of "+path, got, want)
	return got
}

// stamp returns the stamp of a record, or an older one.
func (h *history) stamp(s fsm.Stream) int64 {
	return s.Stamp - int64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(h.t, "age of the stamp"))
}

func (h *history) noteAs(path string, n fsm.Stream) fsm.Stream {
	look := rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(h.t, "look")
	h.newNonce()
	got, done, err := h.store.NoteStream(h.ctx, n, look)
	h.must(err)
	want, wantDone, err := h.spec.NoteStream(h.ctx, n, look)
	h.must(err)
	h.same("note of "+path, got, want)
	h.same("whether "+path+" was noted", done, wantDone)
	return got
}

func (h *history) note() {
	path := h.pick("path", primaries)
	seen := rapid.SampledFrom([]fsm.Offset{"", "0001", "9"}).Draw(h.t, "seen")
	n := fsm.NewStream(path, seen)
	n.Stamp = h.stamp(h.streamAt(path))
	n.Begin = rapid.SampledFrom([]fsm.Offset{n.Begin, fsm.Start}).Draw(h.t, "begin")
	n.Lost = rapid.SampledFrom([]int64{0, 1, math.MaxInt64 >> 10}).Draw(h.t, "unnoted through")
	h.noteAs(path, n)
}

func (h *history) forget() {
	path := h.pick("path", primaries)
	stamp, others := h.stamp(h.streamAt(path)), rapid.Bool().Draw(h.t, "read by others")
	h.newNonce()
	got, err := h.store.ForgetStream(h.ctx, path, stamp, others)
	h.must(err)
	want, err := h.spec.ForgetStream(h.ctx, path, stamp, others)
	h.must(err)
	h.same("forgetting "+path, got, want)
}

func (h *history) observe() { h.observeAt(h.pick("path", paths), h.offset("tail")) }

func (h *history) observeAt(path string, tail fsm.Offset) {
	closed := rapid.SampledFrom([]bool{false, false, false, false, true}).Draw(h.t, "closed")
	got, err := h.store.Observe(h.ctx, 0, path, tail, closed)
	h.must(err)
	want, err := h.spec.Observe(h.ctx, 0, path, tail, closed)
	h.must(err)
	h.outcome("observe", got.Outcome, want.Outcome)
	got.Outcome, want.Outcome = fsm.Outcome{}, fsm.Outcome{}
	h.same("observation of "+path, got, want)
	delete(h.unsettled, path)
}

func (h *history) hide() {
	path := h.pick("path", paths)
	a := rapid.SampledFrom([]fsm.Absence{fsm.Missing, fsm.MissingAnew, fsm.MissingStill, fsm.MissingStill}).Draw(h.t,
		"absence")
	got, err := h.store.Hide(h.ctx, path, a)
	h.must(err)
	want, err := h.spec.Hide(h.ctx, path, a)
	h.must(err)
	h.outcome("hide", got, want)
}

func (h *history) restart() {
	path, tail := h.pick("path", paths), h.offset("tail")
	h.restartAt(path, rapid.SampledFrom([]fsm.Offset{h.tail(path), "0001"}).Draw(h.t, "was"), tail)
}

func (h *history) restartAt(path string, was, tail fsm.Offset) {
	if was == h.tail(path) {
		h.noteReaders(path)
	}
	got, err := h.store.Restart(h.ctx, 0, path, was, tail)
	h.must(err)
	want, err := h.spec.Restart(h.ctx, 0, path, was, tail)
	h.must(err)
	h.outcome("restart", got, want)
	h.forgetAcks(path)
}

func (h *history) deleted() {
	path := h.pick("path", paths)
	of := time.Time{}
	switch record := h.streamAt(path); rapid.SampledFrom([]string{"whichever", "this", "another"}).Draw(h.t, "of") {
	case "this":
		of = record.First
	case "another":
		of = record.First.Add(-time.Microsecond)
	}
	h.deletedAt(path, of)
}

// deletedAt has a stream deleted that has a record from a moment on; whichever there is for none.
func (h *history) deletedAt(path string, of time.Time) {
	before := h.streamAt(path)
	dealt := of.IsZero() || before.Found() && of.Equal(before.First)
	if dealt {
		h.noteReaders(path)
	}
	h.newNonce()
	d := fsm.Deletion{
		Of: of, Expect: rapid.Bool().Draw(h.t, "expect"), Anew: rapid.Bool().Draw(h.t, "anew"),
		Doubt: rapid.Bool().Draw(h.t, "doubt"),
	}
	got, err := h.store.Deleted(h.ctx, 0, path, d)
	h.must(err)
	want, err := h.spec.Deleted(h.ctx, 0, path, d)
	h.must(err)
	h.outcome("deleted", got, want)
	h.newNonce()
	taken, err := h.store.TakeDeletion(h.ctx, path)
	h.must(err)
	wantTaken, err := h.spec.TakeDeletion(h.ctx, path)
	h.must(err)
	h.same("whether the deletion of "+path+" was taken", taken, wantTaken)
	if dealt && !h.streamAt(path).Found() && rapid.Bool().Draw(h.t, "shown by an answer from before") {
		shown := fsm.NewStream(path, "0001")
		shown.Stamp = before.Stamp
		if s := h.noteAs(path, shown); s.Found() {
			h.fail("%s was put on record by an answer from before it was deleted: %+v", path, s)
		}
	}
	if dealt {
		h.forgetAcks(path)
	}
}

// noteReaders is for a stream that is about to be deleted or made anew.
func (h *history) noteReaders(path string) {
	for _, c := range h.db.Consumers() {
		if _, linked := c.Links[path]; linked && c.Primary != path {
			h.read[ackKey(c, path)] = c.Epoch
		}
	}
}

// late is a worker that is at work while one of its streams is deleted and made anew, and then acks what it has read.
func (h *history) late() {
	wake := h.ref()
	c, there := h.alive(wake.Consumer)
	if !there || len(c.Links) < 2 || c.Epoch != wake.Epoch {
		return
	}
	var others []string
	for _, path := range paths {
		if _, linked := c.Links[path]; linked && path != c.Primary {
			others = append(others, path)
		}
	}
	path := h.pick("stream", others)
	h.deletedAt(path, time.Time{})
	h.agree("a deletion")
	if rapid.Bool().Draw(h.t, "seen again") {
		h.newNonce()
		h.observeAt(path, h.offset("tail"))
	}
	h.newNonce()
	if rapid.Bool().Draw(h.t, "done") {
		h.finish(wake)
		return
	}
	cb := h.callbackOf(wake)
	cb.WakeID, cb.MaxStreams, cb.Acks = wake.WakeID, 3, []fsm.Ack{{Path: path, Offset: c.Links[path].Tail}}
	if rapid.Bool().Draw(h.t, "looked at again") {
		cb.Tails[path] = h.offset("tail")
	}
	h.call(cb)
}

// forgetAcks is for a stream that was made anew: S4 holds for each incarnation of it.
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
	h.must(h.store.DeleteSubscription(h.ctx, sub.ID))
	h.must(h.spec.DeleteSubscription(h.ctx, sub.ID))
	h.outcome("drop", h.told, h.specTold)
	h.told, h.specTold = fsm.Outcome{}, fsm.Outcome{}
	h.former[sub.ID], h.subs[i] = sub, h.subscription(sub.ID)
}

func (h *history) resume() {
	h.resumed(rapid.SampledFrom(h.subs).Draw(h.t, "subscription").ID)
}

func (h *history) resumed(id string) {
	n, got, err := h.store.ResumeSubscription(h.ctx, id)
	h.must(err)
	wantN, want, err := h.spec.ResumeSubscription(h.ctx, id)
	h.must(err)
	h.same("how many are resumed", n, wantN)
	h.outcome("resume", got, want)
}

// heldBack is an attempt that is due and not begun, as that of a subscription that is paused. Some are resumed, which
// does not end every reason to wait.
func (h *history) heldBack(wake fsm.Delivery) {
	whys := []fsm.BlockReason{fsm.BlockedPaused, fsm.BlockedRate, fsm.BlockedPaused, fsm.BlockedConsent}
	h.parked(wake.Ref(), whys[len(h.refs)%len(whys)], time.Hour)
	if h.calls%4 > 0 {
		h.agree("an attempt is held back")
		h.draw.Nonce += "x"
		h.resumed(wake.Subscription)
	}
}

// stayOrNot is a reason to wait that the end of another one ends, or not.
func (h *history) stayOrNot() fsm.BlockReason {
	return []fsm.BlockReason{fsm.BlockedSlot, fsm.BlockedRate, fsm.BlockedConsent}[len(h.refs)%3]
}

func (h *history) parked(r fsm.DeliveryRef, why fsm.BlockReason, wait time.Duration) {
	got, err := h.store.Park(h.ctx, r, why, wait)
	h.must(err)
	want, err := h.spec.Park(h.ctx, r, why, wait)
	h.must(err)
	h.outcome("park", got, want)
}

// fails is an endpoint that fails again and again: each attempt is made when it is due, and fails, but for a few that
// are held back at first. In the end its subscription may have lost its settings.
func (h *history) fails() {
	for left := rapid.IntRange(2, 4).Draw(h.t, "failures"); left > 0; left-- {
		from := len(h.refs)
		h.newNonce()
		h.dueAt(true)
		for _, wake := range h.refs[from:] {
			h.newNonce()
			if left > 1 && h.calls%3 == 0 {
				h.heldBack(wake)
				continue
			}
			f := fsm.Failure{Reason: "status 500"}
			for _, sub := range h.subs {
				if sub.ID == wake.Subscription && (left > 1 || h.calls%2 == 0) {
					f.Profile = sub.Profile()
				}
			}
			h.failed(wake, f)
		}
		h.agree("a failure")
	}
}

// endpoint is what some deliveries show of the endpoint of a subscription, which may be deleted by now.
func (h *history) endpoint() {
	sub := rapid.SampledFrom(h.subs).Draw(h.t, "subscription")
	if was, there := h.former[sub.ID]; there && rapid.IntRange(0, 3).Draw(h.t, "which was deleted") == 0 {
		sub = was
	}
	slot := time.Time{}
	if rapid.Bool().Draw(h.t, "it is down and probed") {
		for range fsm.DownAfter {
			h.failEndpoint(sub, fsm.EndpointFailure{})
		}
		h.draw.Now = h.draw.Now.Add(fsm.ProbePauseMax)
		slot = h.probe(sub, slot)
	}
	reason := func() string {
		return rapid.SampledFrom([]string{"", "status 503", "8 1 words  and 9 numbers "}).Draw(h.t, "reason")
	}
	for range rapid.IntRange(1, 8).Draw(h.t, "shown") {
		switch h.pick("shown", []string{
			"fails", "fails", "is not taken", "is not taken", "a pause",
			"recovers", "probe", "probe", "returned", "later", "later", "retried",
		}) {
		case "fails":
			h.failEndpoint(sub, fsm.EndpointFailure{Probe: slot, Reason: reason()})
		case "is not taken":
			h.failEndpoint(sub, fsm.EndpointFailure{
				Probe: slot, Reason: reason(),
				Refused: rapid.Bool().Draw(h.t, "for good"),
				Shown:   rapid.Bool().Draw(h.t, "only shown"),
			})
		case "a pause":
			h.failEndpoint(sub, fsm.EndpointFailure{
				Probe: slot, Shown: h.calls%2 == 0, Refused: h.calls%5 == 0, RetryAfter: rapid.SampledFrom(
					[]time.Duration{time.Second, time.Minute, 5 * time.Hour}).Draw(h.t, "retry after"),
			})
			another := h.subs[h.calls%len(h.subs)] // it mostly has the same origin
			h.probe(another, time.Time{})
			h.endpoints(another)
		case "recovers":
			got, err := h.store.RecoverEndpoint(h.ctx, sub)
			h.must(err)
			want, err := h.spec.RecoverEndpoint(h.ctx, sub)
			h.must(err)
			h.same("whether the endpoint is up since", got, want)
		case "retried": // that is the subscription which has the ID now
			h.retry(sub)
			h.endpoints(h.subs[slices.IndexFunc(h.subs, func(s fsm.Subscription) bool { return s.ID == sub.ID })])
			continue
		case "probe":
			slot = h.probe(sub, slot)
		case "returned":
			sent := rapid.Bool().Draw(h.t, "sent")
			h.must(h.store.ReturnProbe(h.ctx, sub, slot, sent))
			h.must(h.spec.ReturnProbe(h.ctx, sub, slot, sent))
		case "later":
			h.draw.Now = h.draw.Now.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(h.t, "later"))
			continue // a replica hears of what was deleted from the next answer
		}
		h.endpoints(sub)
	}
}

func (h *history) failEndpoint(sub fsm.Subscription, f fsm.EndpointFailure) {
	got, err := h.store.FailEndpoint(h.ctx, sub, f)
	h.must(err)
	want, err := h.spec.FailEndpoint(h.ctx, sub, f)
	h.must(err)
	h.same("whether the endpoint is down since", got, want)
}

// probe asks for a delivery, and returns the slot of the probe that is out then; was is that of the one before.
func (h *history) probe(sub fsm.Subscription, was time.Time) time.Time {
	got, err := h.store.ProbeEndpoint(h.ctx, sub, 2*time.Second)
	h.must(err)
	want, err := h.spec.ProbeEndpoint(h.ctx, sub, 2*time.Second)
	h.must(err)
	h.same("whether a delivery may begin", got, want)
	if got.Slot.IsZero() {
		return was
	}
	return got.Slot
}

// endpoints compares what both sides know of an endpoint.
func (h *history) endpoints(sub fsm.Subscription) {
	got, _, trouble := h.store.Endpoints().Get(sub.Generation)
	want, _, wantTrouble := h.spec.Endpoints().Get(sub.Generation)
	h.same("endpoint of "+sub.Generation, got, want)
	h.same("whether it is in trouble", trouble, wantTrouble)
}

// probeWake has a probe carried by what has waited for longest.
func (h *history) probeWake(sub fsm.Subscription) {
	r, _, got, err := h.store.LongestWaiting(h.ctx, sub, time.Time{})
	h.must(err)
	_, _, want, err := h.spec.LongestWaiting(h.ctx, sub, time.Time{})
	h.must(err)
	h.same("whether an attempt waits", got, want)
	waited, err := h.store.ProbeDelivery(h.ctx, r)
	h.must(err)
	want, err = h.spec.ProbeDelivery(h.ctx, r)
	h.must(err)
	h.same("whether a probe is carried", waited, want)
	if got != waited {
		h.fail("of %s %+v has waited for longest, which does not wait", sub.ID, r)
	}
}

// flaps is an endpoint that is down, and then up again and again: what was released fails, is held back or is taken.
func (h *history) flaps() {
	sub := rapid.SampledFrom(h.subs).Draw(h.t, "subscription")
	fails := func(wake fsm.Delivery, f fsm.Failure) {
		f.Reason, f.Profile = "status 503", h.profile(wake)
		if h.aside && rapid.Bool().Draw(h.t, "with what it has brought") {
			f.To, f.Within, f.Tail = h.brought(wake)
		}
		h.failed(wake, f)
	}
	from := len(h.refs)
	h.newNonce()
	h.dueAt(true)
	for _, wake := range h.refs[from:] {
		h.newNonce() // it brings nothing that steps aside, so that it waits
		h.failed(wake, fsm.Failure{Reason: "status 503", Profile: h.profile(wake), RetryAfter: 2 * time.Minute})
	}
	for left := rapid.IntRange(1, 4).Draw(h.t, "times"); left > 0; left-- {
		h.newNonce()
		switch rapid.IntRange(0, 8).Draw(h.t, "an operator asks") {
		case 0:
			h.retry(sub)
		case 1:
			h.retryWake()
		case 2, 3:
			h.probeWake(sub)
		case 4, 5: // what is due is held back
			h.retry(sub)
			from := len(h.refs)
			h.newNonce()
			h.dueAt(false)
			for _, wake := range h.refs[from:] {
				h.newNonce()
				h.parked(wake.Ref(), h.stayOrNot(), time.Minute)
			}
			if h.calls%2 == 0 {
				h.probeWake(sub)
			} else {
				h.releaseHeld(sub)
			}
		default:
			h.releaseHeld(sub)
		}
		h.agree("a release")
		from := len(h.refs)
		h.newNonce()
		h.dueAt(rapid.IntRange(0, 2).Draw(h.t, "at the deadline") == 0)
		for _, wake := range h.refs[from:] {
			h.newNonce()
			switch h.pick("answer", []string{"fails", "fails", "asks for a pause", "held", "later", "taken"}) {
			case "fails":
				fails(wake, fsm.Failure{})
			case "asks for a pause":
				fails(wake, fsm.Failure{RetryAfter: 2 * time.Minute})
			case "held":
				h.parked(wake.Ref(), h.stayOrNot(), time.Minute)
			case "later":
				h.draw.Now = h.draw.Now.Add(time.Second)
			case "taken":
				from := len(h.refs)
				h.finish(wake)
				h.newNonce()
				h.observeAt(wake.Primary, h.offset("tail"))
				for _, wake := range h.refs[from:] {
					h.newNonce()
					fails(wake, fsm.Failure{})
				}
			}
		}
		h.agree("what came of a release")
	}
}

func (h *history) retry(sub fsm.Subscription) {
	got, err := h.store.RetrySubscription(h.ctx, sub.ID)
	h.must(err)
	want, err := h.spec.RetrySubscription(h.ctx, sub.ID)
	h.must(err)
	h.same("how many are retried", got, want)
}

// retryWake is for a wake that was handed out, whether or not it is over.
func (h *history) retryWake() {
	if len(h.refs) == 0 {
		return
	}
	wake := rapid.SampledFrom(h.refs).Draw(h.t, "wake")
	sub := fsm.Subscription{ID: wake.Subscription, Generation: wake.Generation, Webhook: "https://example.com"}
	got, err := h.store.RetryDelivery(h.ctx, sub, wake.Ref())
	h.must(err)
	want, err := h.spec.RetryDelivery(h.ctx, sub, wake.Ref())
	h.must(err)
	h.same("whether an attempt is made at once", got, want)
}

func (h *history) releaseHeld(sub fsm.Subscription) {
	reasons := []fsm.BlockReason{fsm.BlockedDown, fsm.BlockedDown, fsm.BlockedConsent}
	ended := rapid.SampledFrom(reasons).Draw(h.t, "ended")
	got, err := h.store.ReleaseHeld(h.ctx, sub, ended)
	h.must(err)
	want, err := h.spec.ReleaseHeld(h.ctx, sub, ended)
	h.must(err)
	h.outcome("release", got, want)
}

func (h *history) due() { h.dueAt(rapid.Bool().Draw(h.t, "at the deadline")) }

func (h *history) dueAt(deadline bool) {
	if deadline {
		var next time.Time
		for _, c := range h.db.Consumers() {
			if !c.Deadline.IsZero() && (next.IsZero() || c.Deadline.Before(next)) {
				next = c.Deadline
			}
		}
		if next.After(h.draw.Now) {
			h.draw.Now = next
		}
	}
	got, n, err := h.store.Due(h.ctx, 0, 100)
	h.must(err)
	want, m, err := h.spec.Due(h.ctx, 0, 100)
	h.must(err)
	h.same("how many are due", n, m)
	h.outcome("due", got, want)
}

// ref is a delivery attempt from the history, mostly the latest, sometimes with a part of another.
func (h *history) ref() fsm.Delivery {
	if len(h.refs) == 0 {
		return fsm.Delivery{Consumer: "one:%2Fa", Primary: "/a", Epoch: 1, WakeID: "w_none", Attempt: 1}
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
	case 3:
		wake.Handed--
	}
	return wake
}

func (h *history) answer() {
	wake := h.ref()
	r := wake.Ref()
	switch kind := h.pick("answer", []string{
		"fail", "fail", "retired", "park", "begin", "accept", "finish", "finish after an event", "deliver",
		"deliver what was sent again",
	}); kind {
	case "fail", "retired":
		wait := rapid.SampledFrom([]time.Duration{0, 0, time.Minute, 5 * time.Hour}).Draw(h.t, "retry after")
		f := fsm.Failure{
			RetryAfter: wait, Retired: kind == "retired",
			Reason:  h.pick("reason", []string{"status 503", "connection refused"}),
			Profile: h.profile(wake), Span: int64(h.calls % 3),
		}
		if h.aside {
			f.To, f.Within, f.Tail = h.brought(wake)
		}
		h.failed(wake, f)
	case "park":
		wait := rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(h.t, "parked for")
		whys := []fsm.BlockReason{fsm.BlockedSlot, fsm.BlockedRate, fsm.BlockedConsent, ""}
		h.parked(r, rapid.SampledFrom(whys).Draw(h.t, "why"), wait)
	case "begin":
		by := h.pick("by", []string{"a", "b"})
		got, err := h.store.Begin(h.ctx, r, by)
		h.must(err)
		want, err := h.spec.Begin(h.ctx, r, by)
		h.must(err)
		h.outcome(kind, got, want)
	case "accept":
		got, err := h.store.Accept(h.ctx, r)
		h.must(err)
		want, err := h.spec.Accept(h.ctx, r)
		h.must(err)
		h.outcome(kind, got, want)
	case "finish":
		h.finish(wake)
	case "finish after an event":
		tail := rapid.SampledFrom(offsets).Draw(h.t, "tail")
		got, err := h.store.Observe(h.ctx, 0, wake.Primary, tail, false)
		h.must(err)
		want, err := h.spec.Observe(h.ctx, 0, wake.Primary, tail, false)
		h.must(err)
		h.outcome("event", got.Outcome, want.Outcome)
		delete(h.unsettled, wake.Primary)
		h.newNonce()
		h.finish(wake)
	case "deliver":
		h.deliver(wake)
	case "deliver what was sent again":
		for _, c := range h.db.Consumers() {
			if c.State == fsm.Waking && c.Sent && len(c.Profile.Delays) > 0 && c.HiddenAt.IsZero() {
				if c.Deadline.After(h.draw.Now) {
					h.draw.Now = c.Deadline
				}
				was := slices.IndexFunc(h.refs, func(w fsm.Delivery) bool { return spec.Out(c, w.Ref()) })
				h.dueAt(false)
				h.newNonce()
				by := h.refs[len(h.refs)-1]
				if was >= 0 && rapid.Bool().Draw(h.t, "by the former attempt") {
					by = h.refs[was]
				}
				h.deliver(by)
				return
			}
		}
	}
}

// failed reports that an attempt has failed.
func (h *history) failed(wake fsm.Delivery, f fsm.Failure) {
	if f.Tail != "" {
		h.unsettled[wake.Primary] = true
	}
	f.Event, f.Status = h.takes(wake), 500
	got, err := h.store.Fail(h.ctx, wake.Ref(), f)
	h.must(err)
	want, err := h.spec.Fail(h.ctx, wake.Ref(), f)
	h.must(err)
	h.outcome("fail", got, want)
}

// profile is that of the wake's subscription, or that of another: the subscription may have been changed.
func (h *history) profile(wake fsm.Delivery) fsm.Profile {
	subs := slices.Clone(h.subs)
	if rapid.IntRange(0, 3).Draw(h.t, "profile") > 0 {
		subs = slices.DeleteFunc(subs, func(s fsm.Subscription) bool { return s.ID != wake.Subscription })
	}
	if len(subs) == 0 {
		return fsm.Profile{}
	}
	return subs[rapid.IntRange(0, len(subs)-1).Draw(h.t, "subscription")].Profile()
}

// deliver has an attempt bring what reading a stream has shown: some of it, all of it, or more than is noted.
func (h *history) deliver(wake fsm.Delivery) {
	h.delivers(wake, h.aside && rapid.Bool().Draw(h.t, "dead"))
}

func (h *history) delivers(wake fsm.Delivery, dead bool) {
	d := fsm.Delivered{
		Path: wake.Primary, Profile: h.profile(wake), Unsent: rapid.IntRange(0, 3).Draw(h.t, "unsent") == 0,
	}
	d.To, d.Within, d.Tail = h.brought(wake)
	if dead {
		d.Dead = &fsm.DeadLetter{
			Subscription: wake.Subscription, Generation: wake.Generation, Consumer: wake.Receiver(),
			Stream: wake.Primary, Born: wake.Born, From: wake.At(wake.Primary), To: d.To, Within: d.Within,
			Attempts: wake.Attempt, Reason: "status 400", Status: 400, Answer: "no \"thanks\"\n",
		}
	}
	h.reports(wake, d)
}

// reports says what has become of what an attempt has brought.
func (h *history) reports(wake fsm.Delivery, d fsm.Delivered) {
	h.unsettled[d.Path] = true
	d.Event, d.Status = h.takes(wake), 200
	got, err := h.store.Deliver(h.ctx, wake.Ref(), d)
	h.must(err)
	want, err := h.spec.Deliver(h.ctx, wake.Ref(), d)
	h.must(err)
	h.outcome("deliver", got, want)
	if c, there := h.db.Consumer(wake.Consumer); there {
		h.falls(c)
	}
	if len(want.Idle) > 0 {
		h.cameUpon.delivered++
	}
}

// brought is what reading the stream of an attempt has shown.
func (h *history) brought(wake fsm.Delivery) (to, within, tail fsm.Offset) {
	for _, s := range wake.Streams {
		if s.Path != wake.Primary {
			continue
		}
		from, n := s.Acked.Split()
		tail, within = s.Tail, from.At(n+1, s.Tail)
		switch h.pick("delivered", []string{"some", "all", "more"}) {
		case "some":
			to = within
		case "all":
			to = s.Tail
		case "more":
			tail = rapid.SampledFrom(offsets).Draw(h.t, "tail read")
			to = tail
		}
	}
	if h.aside && rapid.Bool().Draw(h.t, "with no position inside") {
		within = to
	}
	return to, within, tail
}

func (h *history) finish(wake fsm.Delivery) {
	got, err := h.store.Finish(h.ctx, wake.Ref(), wake.Streams)
	h.must(err)
	want, err := h.spec.Finish(h.ctx, wake.Ref(), wake.Streams)
	h.must(err)
	h.outcome("finish", got, want)
}

// callbackOf is a callback of a wake that asks for nothing.
func (h *history) callbackOf(wake fsm.Delivery) fsm.Callback {
	return fsm.Callback{
		Consumer: wake.Ref().Consumer, Primary: wake.Primary, Generation: wake.Generation, Epoch: wake.Epoch,
		TokenEpoch: wake.Epoch, MaxStreams: 2, Tails: map[string]fsm.Offset{},
	}
}

func (h *history) callback() {
	wake := h.ref()
	cb := h.callbackOf(wake)
	cb.TokenExpired = rapid.IntRange(0, 11).Draw(h.t, "token") == 0
	cb.Done = rapid.Bool().Draw(h.t, "done")
	if rapid.IntRange(0, 11).Draw(h.t, "token's epoch") == 0 {
		cb.TokenEpoch--
	}
	if rapid.Bool().Draw(h.t, "claim") {
		cb.WakeID = wake.WakeID
	}
	for range rapid.IntRange(0, 2).Draw(h.t, "acks") {
		path := h.pick("ack", paths)
		to := h.offset("to")
		if tail := h.tail(path); tail != "" && rapid.Bool().Draw(h.t, "the tail") {
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
	h.call(cb)
}

// worker is a callback of a worker that makes no mistake: of a wake that is the current one, done with all that is
// there, and now subscribed to other streams than before. It leaves consumers at rest that are not subscribed to
// their primary stream, or to more than that.
func (h *history) worker() {
	consumers := h.db.Consumers()
	if len(consumers) == 0 {
		return
	}
	c := rapid.SampledFrom(consumers).Draw(h.t, "consumer")
	cb := fsm.Callback{
		Consumer: c.Ref(), Primary: c.Primary, Generation: c.Generation, Epoch: c.Epoch, TokenEpoch: c.Epoch,
		WakeID: c.WakeID,
		Done:   true, MaxStreams: 3, Tails: map[string]fsm.Offset{},
	}
	for _, path := range paths {
		if l, linked := c.Links[path]; linked {
			cb.Acks = append(cb.Acks, fsm.Ack{Path: path, Offset: l.Tail})
		}
	}
	for _, path := range paths {
		if rapid.Bool().Draw(h.t, "to subscribe to "+path) {
			from := h.tail(path)
			if from == "" {
				from = fsm.Start
			}
			cb.Subscribe = append(cb.Subscribe, fsm.Subscribe{Path: path, From: from})
		} else if len(cb.Subscribe) > 0 {
			cb.Unsubscribe = append(cb.Unsubscribe, path)
		}
	}
	h.call(cb)
}

// call makes a callback.
func (h *history) call(cb fsm.Callback) {
	before, alive := h.alive(cb.Consumer.ID)
	got, err := h.store.Callback(h.ctx, cb)
	h.must(err)
	want, err := h.spec.Callback(h.ctx, cb)
	h.must(err)
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
	visible := alive && !before.IsAside() && before.HiddenAt.IsZero() && before.Generation == cb.Generation &&
		before.WakeID != "" && before.State != fsm.GivenUp
	switch {
	case !visible && got.Code != fsm.CodeConsumerGone:
		h.fail("S7: the consumer is gone, the callback got %q", got.Code)
	case visible && !cb.TokenExpired && cb.Epoch < before.Epoch && got.Code != fsm.CodeStaleEpoch:
		h.fail("S6: epoch %d is stale (now %d), the callback got %q", cb.Epoch, before.Epoch, got.Code)
	}
	current := visible && !cb.TokenExpired && cb.Epoch == before.Epoch && cb.TokenEpoch == before.Epoch
	plain := len(cb.Acks) == 0 && len(cb.Subscribe) == 0
	if current && plain && cb.WakeID != "" {
		if ok := got.Code == ""; ok != (cb.WakeID == before.WakeID) {
			h.fail("S3: wake id %s, current %s, answered %q", cb.WakeID, before.WakeID, got.Code)
		}
	}
	if got.Code == "" {
		token, err := h.tokens.Parse(h.tokens.Mint(cb.Consumer.ID, cb.Generation, cb.Epoch, h.draw.Now))
		if err != nil || token.Consumer != cb.Consumer.ID || token.Epoch != cb.Epoch {
			h.fail("S5: a token for %s epoch %d reads as %+v (%v)", cb.Consumer.ID, cb.Epoch, token, err)
		}
	}
	after, still := h.alive(cb.Consumer.ID)
	if got.Code != "" || !cb.Done || !still || before.State == fsm.Idle {
		return
	}
	switch pending := after.Pending(); {
	case !pending && after.State != fsm.Idle:
		h.fail("L2: done with nothing pending left the consumer %s", after.State)
	case pending && (after.State != fsm.Waking || after.Epoch <= before.Epoch):
		h.fail("L3: done with work pending left the consumer %s in epoch %d after %d", after.State, after.Epoch,
			before.Epoch)
	}
}

// agree compares all of the state and checks the invariants that hold at any moment.
func (h *history) agree(kind string) {
	h.forgetUnlinked()
	for _, sub := range []string{"one", "two"} {
		for _, path := range primaries {
			id := fsm.ConsumerID(sub, path)
			got, err := h.store.Consumer(h.ctx, fsm.ConsumerRef{ID: id, Home: path})
			want, alive := h.alive(id)
			if errors.Is(err, fsm.ErrNotFound) {
				if alive {
					h.fail("after %s: the store has no consumer %s, the transitions have %+v", kind, id, want)
				}
				continue
			}
			h.must(err)
			if !alive {
				h.fail("after %s: the store has a consumer that the transitions have not: %+v", kind, got)
			}
			h.same("after "+kind+": consumer "+id, got, want)
			h.sound(got)
		}
	}
	h.asidesAgree(kind)
	h.lettersAgree(kind)
	h.eventsAgree(kind)
	h.listed(kind)
	h.tallied(kind)
	kept, err := h.rdb.HLen(h.ctx, "rv:{subs}:endpoints").Result()
	h.must(err)
	h.same("after "+kind+": endpoints in trouble", kept, len(h.db.Endpoints()))
	pauses, err := h.rdb.ZRangeWithScores(h.ctx, "rv:{subs}:pauses", 0, -1).Result()
	h.must(err)
	paused := map[string]time.Time{}
	for _, p := range pauses {
		paused[fmt.Sprint(p.Member)] = time.UnixMilli(int64(p.Score))
	}
	h.same("after "+kind+": origins that are left alone", paused, h.db.Pauses())
}

// listed checks that the lists of the consumers by state hold those that are in it, since a time that can be.
func (h *history) listed(kind string) {
	want := map[string][]string{"waiting": {}, "aside": {}, "retired": {}, "live": {}, "given_up": {}}
	for _, c := range h.db.Consumers() {
		id := c.ID
		switch {
		case c.State == fsm.GivenUp:
			want["given_up"] = append(want["given_up"], id)
		case c.State == fsm.Live:
			want["live"] = append(want["live"], id)
		case c.State == fsm.Waking && c.Retired:
			want["retired"] = append(want["retired"], id)
		case c.State == fsm.Waking && c.IsAside():
			want["aside"] = append(want["aside"], id)
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
			c, _ := h.db.Consumer(id)
			since := time.UnixMilli(int64(z.Score))
			// A wake that another incarnation of the store has made anew has waited for longer than that.
			if since.After(h.draw.Now) || h.failovers == 0 && since.Before(c.WokeAt) {
				h.fail("after %s: %s is %s since %s, woken at %s, now %s", kind, id, list, since, c.WokeAt,
					h.draw.Now)
			}
		}
		slices.Sort(got)
		h.same("after "+kind+": who is "+list, got, ids)
	}
}

// tallied checks that the lists of those that fail or are hidden say since when they are, and that subscriptions are
// counted alike.
func (h *history) tallied(kind string) {
	want := map[string]map[string]time.Time{"failing": {}, "hidden": {}}
	for _, c := range h.db.Consumers() {
		for list, since := range map[string]time.Time{"failing": c.FirstFailure, "hidden": c.HiddenAt} {
			if !since.IsZero() {
				want[list][c.ID] = since
			}
		}
	}
	for list, since := range want {
		found, err := h.rdb.ZRangeWithScores(h.ctx, "rv:{0}:"+list, 0, -1).Result()
		h.must(err)
		got := map[string]time.Time{}
		for _, z := range found {
			id, _ := z.Member.(string)
			got[id] = time.UnixMilli(int64(z.Score))
		}
		h.same("after "+kind+": who is "+list, got, since)
	}
	counted, err := h.store.TallyConsumers(h.ctx, h.subs)
	h.must(err)
	tallies, err := h.spec.TallyConsumers(h.ctx, h.subs)
	h.must(err)
	h.same("after "+kind+": how many there are", counted, tallies)
	each, err := h.store.TallyEach(h.ctx, h.subs, 1000)
	h.must(err)
	h.same("after "+kind+": how many there are, one by one", each, tallies)
}

// falls checks S4. A step that moves a consumer several times has each move checked: the offset may go to another
// incarnation and back.
func (h *history) falls(c fsm.Consumer) {
	for path, l := range c.Links {
		key := ackKey(c, path)
		if before, ok := h.acked[key]; ok && before.After(l.Acked) {
			h.fail("S4: acked offset of %s fell from %s to %s", key, before, l.Acked)
		}
		h.acked[key] = l.Acked
	}
}

func (h *history) sound(c fsm.Consumer) {
	h.falls(c)
	settled := true
	for path, l := range c.Links {
		key := ackKey(c, path)
		if epoch, read := h.read[key]; read && c.Epoch <= epoch && l.Acked != fsm.Start {
			h.fail("%s was acked up to %s by a wake that began before the stream was made anew", key, l.Acked)
		}
		settled = settled && !h.unsettled[path]
		if l.Acked.After(l.Tail) {
			h.fail("L1: %s was acked up to %s, beyond the tail %q: what comes until then would wake nobody", key,
				l.Acked, l.Tail)
		}
	}
	switch {
	case settled && c.State == fsm.Idle && c.HiddenAt.IsZero() && c.Pending():
		h.fail("L1: consumer %s is idle with work pending: %+v", c.ID, c)
	case settled && c.State == fsm.GivenUp && c.HiddenAt.IsZero() && renewed(c):
		h.fail("L1: consumer %s was given up, and had an event since: %+v", c.ID, c)
	case (c.State == fsm.Live || c.State == fsm.Waking && !c.Retired) && c.Deadline.IsZero():
		h.fail("consumer %s waits for nothing: %+v", c.ID, c)
	}
}

func renewed(c fsm.Consumer) bool {
	for _, l := range c.Links {
		if l.Tail.After(l.Past) {
			return true
		}
	}
	return false
}

func ackKey(c fsm.Consumer, path string) string { return c.ID + " " + c.Generation + " " + path }

// forgetUnlinked is for streams that a consumer unsubscribed from, or that were another consumer's of the same id:
// when it subscribes again it starts wherever the stream ends then.
func (h *history) forgetUnlinked() {
	linked := map[string]bool{}
	for _, c := range h.db.Consumers() {
		for path := range c.Links {
			linked[ackKey(c, path)] = true
		}
	}
	for key := range h.acked {
		if !linked[key] {
			delete(h.acked, key)
		}
	}
	for key := range h.read {
		if !linked[key] {
			delete(h.read, key)
		}
	}
}

// converges lets the world be quiet and every endpoint work: all consumers must come to rest with everything acked
// (L1).
func (h *history) converges() {
	for _, path := range paths {
		if tail := h.tail(path); tail != "" {
			h.newNonce()
			got, err := h.store.Observe(h.ctx, 0, path, tail, false)
			h.must(err)
			want, err := h.spec.Observe(h.ctx, 0, path, tail, false)
			h.must(err)
			h.outcome("last look", got.Outcome, want.Outcome)
			delete(h.unsettled, path)
		}
	}
	for range 60 {
		h.newNonce()
		h.resume()
		from := len(h.refs)
		h.due()
		for _, wake := range h.refs[from:] {
			h.draw.Nonce += "x"
			got, err := h.store.Finish(h.ctx, wake.Ref(), wake.Streams)
			h.must(err)
			want, err := h.spec.Finish(h.ctx, wake.Ref(), wake.Streams)
			h.must(err)
			h.outcome("last answer", got, want)
		}
		h.draw.Now = h.draw.Now.Add(time.Minute)
	}
	h.agree("the end")
	for _, c := range h.db.Consumers() {
		if c.State != fsm.Idle {
			h.fail("L1: consumer %s never came to rest: %+v", c.ID, c)
		}
	}
	for _, wake := range h.refs {
		if !h.over[fmt.Sprintf("%s %d", wake.Consumer, wake.Epoch)] {
			h.fail("nobody was told that a wake is over: %+v", wake)
		}
	}
}
