package tailer

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/spec/memstore"
	"reveille/tailer/discovery"
	"reveille/tailer/upstream"
)

// discoverer is what the model is of: discovery and watching, as one replica runs them.
type discoverer interface {
	router.StreamWatcher
	modelStreams
	modelHeads
	Run(ctx context.Context) error
	Hinted(h fsm.Hint)
	// Held is how many items the replica keeps in each of its maps and lists that must come to an end by themselves.
	Held() map[string]int
	// Watched are the streams that the replica watches.
	Watched() []string
}

// modelStreams is what clients and operators tell a replica of streams.
type modelStreams interface {
	BeforeWrite(ctx context.Context, path string, create bool) fsm.Write
	Written(w fsm.Write, tail fsm.Offset, created bool)
	Refused(w fsm.Write)
	Deleted(ctx context.Context, path string) error
	Name(ctx context.Context, paths []string) error
	Forget(ctx context.Context, paths []string) error
	Subscribe(ctx context.Context, sub fsm.Subscription) (stored fsm.Subscription, created bool, err error)
	Watch(primary string, paths []string)
}

// modelHeads asks upstream for a replica.
type modelHeads interface {
	Head(ctx context.Context, path string) (fsm.StreamInfo, error)
	HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error)
}

// modelBackfillWaits are how long the creators of subscriptions wait, by replica: so long that most backfills are over
// when the 201 is sent, or so short that most of their HEADs are still under way then.
var modelBackfillWaits = [modelReplicas]time.Duration{250 * time.Millisecond, 10 * time.Millisecond}

// newDiscoverer makes the one that is under test: another takes its place here. room is for how many streams its memory
// has room; 0 for as many as there are. wait is how long the creators of subscriptions wait. registry says that it
// reads the registry stream.
func newDiscoverer(
	store *memstore.Store, up *modelUpstream, outcomes *router.Router, room int, wait time.Duration,
	registry bool,
) (discoverer, error) {
	cfg := Config{
		Upstream: upstream.Config{URL: &url.URL{Scheme: "http", Host: "upstream.test"}, Dial: up.dial},
		Store:    store, Outcomes: outcomes, Logger: zap.NewNop(), GoneGrace: modelTiming.GoneGrace,
		ClosedCheck: time.Minute,
		Discovery:   discovery.Config{LookEvery: time.Minute, Max: room, BackfillWait: wait},
	}
	if registry {
		cfg.Discovery.Registry = registryPath
	}
	t, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return modelTailer{t, t.Discovery(), t.Upstream()}, nil
}

type modelTailer struct {
	*Tailer
	modelStreams
	modelHeads
}

func (t modelTailer) Held() map[string]int {
	held := t.discovery.Held()
	var slotted []*watch
	t.slots.mu.Lock()
	for e := t.slots.taken.Front(); e != nil; e = e.Next() {
		slotted = append(slotted, e.Value.(*watch))
	}
	t.slots.mu.Unlock()
	for _, w := range slotted {
		if now, _ := t.watches.get(w.path); now != w {
			held["slots of watches that have ended"]++
		}
	}
	return held
}

func (t modelTailer) Watched() []string {
	t.watches.mu.Lock()
	defer t.watches.mu.Unlock()
	return slices.Collect(maps.Keys(t.watches.byPath))
}

// modelReplica is one replica: its discoverer, its store, and in place of a dispatcher the endpoint of the model's
// workers.
type modelReplica struct {
	m        *model
	id       int
	store    *memstore.Store
	outcomes *router.Router
	d        discoverer
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	dead     bool
}

func (m *model) start(id int) error {
	r := &modelReplica{
		m: m, id: id, store: m.db.Replica(string(rune('A' + id))),
		outcomes: router.New(router.Observer{Transition: m.countGone}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	var err error
	r.d, err = newDiscoverer(r.store, m.up, r.outcomes, m.room, modelBackfillWaits[id], m.registryTells())
	if err != nil {
		return err
	}
	for r.store.Join(r.ctx) != nil { // before that it takes no request
		time.Sleep(500 * time.Millisecond)
	}
	r.outcomes.Connect(r, r.d)
	m.mu.Lock()
	m.replicas[id] = r
	m.mu.Unlock()
	m.share()
	r.wg.Go(func() { _ = r.d.Run(r.ctx) })
	r.wg.Go(func() { _ = r.store.Run(r.ctx, r.d.Hinted) })
	r.wg.Go(r.timers)
	return nil
}

// share spreads the partitions over the replicas that live.
func (m *model) share() {
	m.mu.Lock()
	defer m.mu.Unlock()
	var live []*modelReplica
	for _, r := range m.replicas {
		if r != nil && !r.dead {
			live = append(live, r)
		}
	}
	owned := make([][]int, len(live))
	for p := range modelPartitions {
		if len(live) > 0 {
			owned[p%len(live)] = append(owned[p%len(live)], p)
		}
	}
	for i, r := range live {
		r.store.Own(owned[i]...)
	}
}

// die ends the replica where it stands. Its partitions move when its lease is over.
func (r *modelReplica) die() {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if r.dead {
		return
	}
	r.dead = true
	r.store.Kill()
	r.cancel()
	time.AfterFunc(modelLease, r.m.share)
}

func (r *modelReplica) isDead() bool {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	return r.dead
}

// timers acts on deadlines, once a second.
func (r *modelReplica) timers() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-tick.C:
		}
		for _, p := range r.store.Ownership().Partitions() {
			o, _, err := r.store.Due(r.ctx, p, 100)
			if err == nil {
				r.settle(o)
			}
		}
	}
}

func (r *modelReplica) settle(o fsm.Outcome) { r.outcomes.Follow(o, fsm.Sighting{}) }

// countGone is router.Observer's Transition.
func (m *model) countGone(o fsm.Outcome, _ fsm.Sighting) {
	for _, g := range o.Removed {
		m.gone(g)
	}
}

// Deliver is router.Deliverer's.
func (r *modelReplica) Deliver(wakes []fsm.Delivery) {
	for _, w := range wakes {
		r.m.note(w)
		r.wg.Go(func() { r.attempt(w) })
	}
}

// attempt is a delivery attempt and what the endpoint answers: it has read everything and says so, or it fails.
func (r *modelReplica) attempt(w fsm.Delivery) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-r.ctx.Done():
		return
	}
	var o fsm.Outcome
	var err error
	if r.m.worked(w) {
		o, err = r.store.Finish(r.ctx, w.Ref(), w.Streams)
	} else {
		o, err = r.store.Fail(r.ctx, w.Ref(), fsm.Failure{Reason: "status 503"})
	}
	if err == nil {
		r.settle(o)
	}
}
