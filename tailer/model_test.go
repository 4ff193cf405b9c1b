package tailer

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

const (
	modelPartitions = 3
	modelReplicas   = 2
	modelLease      = 7 * time.Second
	// modelQuiet is how long all is quiet before a history is judged.
	modelQuiet = 5 * time.Minute
)

var modelTiming = fsm.Timing{
	Waking: 10 * time.Second, Liveness: 45 * time.Second, GoneGrace: 30 * time.Second, GCAfter: 10 * time.Minute,
}

var (
	// modelPaths are not all in one partition.
	modelPaths    = []string{"/a", "/b", "/c/c"}
	modelPatterns = []string{"/**", "/*", "/a"}
)

// model is one history at work: a server, a store, replicas, and what is demanded of them.
type model struct {
	db *memstore.DB
	up *modelUpstream
	// room is for how many streams the replicas' memory has room; 0 for as many as there are.
	room int
	// tells is true once the replicas read the registry stream.
	tells bool
	// clients are the requests under way.
	clients sync.WaitGroup

	mu       sync.Mutex
	replicas [modelReplicas]*modelReplica
	subs     map[string]*modelSub
	// generations counts subscriptions; deleted are those whose deletion was answered with success.
	generations int
	deleted     map[string]bool
	events      []modelEvent
	seen        []modelSpan
	// heard is since when a stream is known, by its name: an event past the gateway before then is nobody's.
	heard map[string]bool
	// named are streams that an operator has named that were not there, true until they are; forgotten are those that
	// one had forgotten, and forgets how often that was.
	named     map[string]bool
	forgotten map[string]bool
	forgets   map[string]int
	// unanswered are those that an operator has named who got no answer.
	unanswered map[string]bool
	// unnoticed are those that may have been deleted without anybody noticing: one that is made anew passes for the old
	// one.
	unnoticed map[string]bool
	// unnoted are those that were made while the store could not be told of the write: a replica may take in later that
	// this stream is a new one.
	unnoted map[string]bool
	// past are the incarnations that were made past the gateway.
	past map[string]int
	// replaced is when a client was last told that it has made a stream whose predecessor ended unnoticed.
	replaced map[string]time.Time
	// restarted is when the server restarted, until the replicas are known to have dealt with that.
	restarted time.Time
	// closedAnew are those that were closed, and made anew past the gateway.
	closedAnew map[string]bool
	// links are those that callbacks have made, with when: events since are due. left are those that callbacks have
	// ended; true if they must not come back.
	links map[modelLink]time.Time
	left  map[modelLink]bool
	// removed is when a deletion through the gateway was answered with success, until the stream is made anew.
	removed map[string]time.Time
	failing bool
	faults  []string
	// dying has a replica die around one of its calls: after so many more.
	dying      *modelReplica
	calls      int
	after      bool
	before     memstore.Snapshot
	died, lost time.Time
	// back is when the store that is away is back.
	back time.Time
	// lying is true while the server lies for long, lied is when it lied last.
	lying bool
	lied  time.Time
}

type modelSub struct {
	fsm.Subscription
	// answered is true once the 201 was sent, leaving once somebody wants it deleted.
	answered, leaving bool
}

// modelEvent is an event that must be covered by a wake of each of some consumers.
type modelEvent struct {
	path        string
	incarnation int
	at          fsm.Offset
	landed      time.Time
	// due are those by which it is to be seen, early the generations of those whose backfill is under way.
	due   []modelLink
	early map[string]fsm.Backfill
}

// modelSpan is what a worker has read because of a wake.
type modelSpan struct {
	modelLink
	from, to fsm.Offset
	at       time.Time
}

// covers says whether an event was among what was read.
func (s modelSpan) covers(e modelEvent, l modelLink) bool {
	return s.modelLink == l && !s.at.Before(e.landed) && e.at.After(s.from) && !e.at.After(s.to)
}

func (m *model) fault(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

// note judges a wake as it is handed out: no wake begins for a stream that was deleted before, and was not made anew.
func (m *model) note(w fsm.Delivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, gone := m.removed[w.Primary]
	if gone && m.up.there(w.Primary) == 0 && w.WokeAt.After(at) && w.Attempt == 1 {
		m.faults = append(m.faults,
			fmt.Sprintf("wake for a stream that is gone: %s woke at %s, after the deletion at %s",
				w.Consumer, clock(w.WokeAt), clock(at)))
	}
}

// worked says whether the endpoint works; if so it has read what the wake tells of.
func (m *model) worked(w fsm.Delivery) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing {
		return false
	}
	for _, s := range w.Streams {
		m.seen = append(m.seen, modelSpan{modelLink{w.Generation, w.Primary, s.Path}, s.Acked, s.Tail, time.Now()})
	}
	return true
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// hook lets a replica die around a call.
func (m *model) hook(after bool) func(memstore.Call) error {
	return func(c memstore.Call) error {
		m.mu.Lock()
		r := m.dying
		hit := r != nil && c.Replica == string(rune('A'+r.id)) && after == m.after
		if hit {
			m.calls--
			hit = m.calls < 0
		}
		if hit {
			m.dying = nil
		}
		m.mu.Unlock()
		if hit {
			r.die()
			return fmt.Errorf("%w: the replica is dead", fsm.ErrUnavailable)
		}
		return nil
	}
}

// landed notes an event, and whose it is.
func (m *model) landed(path string, at fsm.Offset, incarnation int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := modelEvent{path: path, incarnation: incarnation, at: at, landed: time.Now(), early: m.db.Backfills()}
	for _, id := range slices.Sorted(maps.Keys(m.subs)) {
		if s := m.subs[id]; m.expects(s, path) {
			e.due = append(e.due, modelLink{s.Generation, path, path})
		}
	}
	for l, since := range m.links {
		if l.path == path && !e.landed.Before(since) {
			e.due = append(e.due, l)
		}
	}
	m.events = append(m.events, e)
	if m.named[path] {
		m.named[path] = false
	}
}

// expects says whether a client may count on it that a subscription gets the events of a stream; m.mu is held.
func (m *model) expects(s *modelSub, path string) bool {
	p, _ := fsm.ParsePattern(s.Pattern)
	_, left := m.left[modelLink{s.Generation, path, path}]
	known := m.heard[path] || p.Literal() && !m.forgotten[path]
	return s.answered && p.Matches(path) && !left && known && !m.unnoticed[path]
}

// replica is one that a client's request goes to; nil if none lives.
func (m *model) replica(n int) *modelReplica {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range modelReplicas {
		if r := m.replicas[(n+i)%modelReplicas]; r != nil && !r.dead {
			return r
		}
	}
	return nil
}

// lose has the store lose its last second.
func (m *model) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.db.Lose(m.before)
	time.AfterFunc(time.Second, m.db.CountLoss)
	m.lost = time.Now()
	for l := range m.left {
		m.left[l] = false
	}
	var links []modelLink
	for _, c := range m.db.Consumers() {
		links = append(links, modelLinksOf(c)...)
	}
	m.dropLinks(func(l modelLink) bool { return !slices.Contains(links, l) || m.mayBeRemoved(l.primary) })
	records := m.db.Records()
	maps.DeleteFunc(m.named, func(path string, _ bool) bool { return !records[path].Found() })
	for path, at := range m.replaced {
		if time.Since(at) < time.Second { // that may be lost
			m.unnoticed[path] = true
			m.excusePrimary(path)
		}
	}
	clear(m.removed)
	clear(m.deleted)
	there := m.db.Subscriptions()
	maps.DeleteFunc(m.subs, func(id string, s *modelSub) bool { return there[id].Generation != s.Generation })
	for id, sub := range there {
		if m.subs[id] == nil { // its deletion is lost
			m.subs[id] = &modelSub{Subscription: sub}
		}
	}
}

// quiet lets everything work again and come to rest.
func (m *model) quiet() error {
	m.tellTruth()
	m.up.set(func() { m.up.headDelay, m.up.lies, m.up.down, m.up.mute, m.up.lag = 0, false, false, false, 0 })
	m.mu.Lock()
	m.failing, m.dying = false, nil
	back := m.back
	m.mu.Unlock()
	time.Sleep(time.Until(back) + time.Second)
	m.clients.Wait()
	if err := m.switchOn(); err != nil {
		return err
	}
	if err := m.revive(); err != nil {
		return err
	}
	m.up.caughtUp()
	time.Sleep(modelQuiet)
	return nil
}

// revive starts the replicas that are dead.
func (m *model) revive() error {
	for id, r := range m.replicas {
		if r != nil && !r.isDead() {
			continue
		}
		if r != nil {
			r.wg.Wait()
		}
		if err := m.start(id); err != nil {
			return err
		}
	}
	return nil
}

// newModel has what a history of these steps needs.
func newModel(steps []modelStep) *model {
	has := func(kind string) bool {
		return slices.ContainsFunc(steps, func(s modelStep) bool { return s.Kind == kind })
	}
	room := 0
	if has("little room") {
		room = 2
	}
	return &model{
		room: room, up: newModelUpstream(has("registry") || has("switch on")),
		tells: has("registry") && !has("switch on"),
		db:    memstore.New(memstore.Options{Partitions: modelPartitions, Timing: modelTiming}),
		subs:  map[string]*modelSub{}, deleted: map[string]bool{}, heard: map[string]bool{},
		named: map[string]bool{}, unanswered: map[string]bool{}, forgotten: map[string]bool{},
		forgets: map[string]int{},
		past:    map[string]int{}, replaced: map[string]time.Time{},
		closedAnew: map[string]bool{}, unnoticed: map[string]bool{}, unnoted: map[string]bool{},
		links: map[modelLink]time.Time{}, left: map[modelLink]bool{}, removed: map[string]time.Time{},
	}
}

// play runs a history and returns what is wrong with it.
func play(t *testing.T, steps []modelStep) (faults []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newModel(steps)
		m.db.SetHooks(memstore.Hooks{Before: m.hook(false), After: m.hook(true)})
		var err error
		if !slices.ContainsFunc(steps, func(s modelStep) bool { return s.Kind == "start" }) {
			err = m.revive()
			time.Sleep(time.Second)
		}
		for _, s := range steps {
			if err == nil {
				m.mu.Lock()
				m.before = m.db.Snapshot()
				m.mu.Unlock()
				err = s.do(m)
			}
		}
		if err = errors.Join(err, m.quiet()); err != nil {
			m.fault("the model is broken: %v", err)
		}
		m.judge()
		for _, r := range m.replicas {
			r.die()
			r.wg.Wait()
		}
		m.clients.Wait()
		m.up.stop()
		time.Sleep(2 * modelLease)
		faults = m.faults
	})
	return faults
}

// modelHistories is how many random histories are run unless -rapid.checks says otherwise. In the short form, rapid
// runs a fifth of what it is told.
const modelHistories = 60

// TestModelOfDiscovery runs random histories; -rapid.seed repeats them, but for what chance the replicas have
// themselves.
func TestModelOfDiscovery(t *testing.T) {
	histories := modelHistories
	if testing.Short() {
		histories *= 5
	}
	for name, value := range map[string]string{
		"rapid.checks": strconv.Itoa(histories),
		// Drawn here rather than by rapid, so that it can be printed whatever the outcome.
		"rapid.seed": strconv.FormatUint(rand.Uint64()|1, 10),
	} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := f.Value.Set(value); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("-rapid.seed=%s repeats the histories", flag.Lookup("rapid.seed").Value)
	shown := false
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawHistory(rt)
		if faults := play(t, steps); len(faults) > 0 {
			if !shown { // rapid shows nothing of what it cannot repeat: chance of the replicas may be in it
				shown = true
				t.Logf("first: %s\nafter\n%s", strings.Join(faults, "\n"), written(steps))
			}
			rt.Fatalf("%s\nafter\n%s", strings.Join(faults, "\n"), written(steps))
		}
	})
}

// client runs a client's request.
func (m *model) client(n int, f func(r *modelReplica)) {
	if r := m.replica(n); r != nil {
		m.clients.Go(func() { f(r) })
	}
}
