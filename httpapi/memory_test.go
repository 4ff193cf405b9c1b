package httpapi

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"reveille/fsm"
)

// memory is a Store that applies the pure transitions. What the package does not call is left to the nil interface.
type memory struct {
	fsm.Store
	clock func() time.Time

	mu        sync.Mutex
	err       error // of every method, if set
	catalog   *fsm.Catalog
	version   int64
	subs      map[string]fsm.Subscription
	backfills map[string]fsm.Backfill
	consumers map[string]fsm.Consumer
	hidden    []string
	resumed   []string
	judged    int
	known     []fsm.Known
	scans     int
	batch     int // of consumers; 3 by default
	wakes     int
}

func newMemory(clock func() time.Time) *memory {
	return &memory{
		clock: clock, catalog: fsm.NewCatalog(), subs: map[string]fsm.Subscription{},
		backfills: map[string]fsm.Backfill{}, consumers: map[string]fsm.Consumer{},
	}
}

func (m *memory) env() fsm.Env {
	m.wakes++
	return fsm.Env{
		Now: m.clock(), WakeID: fmt.Sprintf("w_%d", m.wakes),
		Timing: fsm.Timing{Waking: 10 * time.Second, Liveness: 45 * time.Second, GoneGrace: 30 * time.Second, GCAfter: 72 * time.Hour},
	}
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) Catalog() *fsm.Catalog { return m.catalog }

// RefreshCatalog is the only thing that fills the catalog, so a read that forgets it sees nothing.
func (m *memory) RefreshCatalog(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	var subs []fsm.Subscription
	for _, s := range m.subs {
		subs = append(subs, s)
	}
	m.version++
	m.catalog.Replace(subs, m.version)
	return nil
}

func (m *memory) CreateSubscription(_ context.Context, sub fsm.Subscription) (fsm.Subscription, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return fsm.Subscription{}, false, m.err
	}
	if had, ok := m.subs[sub.ID]; ok {
		if !had.SameConfig(sub) {
			return fsm.Subscription{}, false, fmt.Errorf("create: %w", fsm.ErrConflict)
		}
		return had, false, nil
	}
	m.subs[sub.ID] = sub
	return sub, true, nil
}

func (m *memory) DeleteSubscription(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.subs, id)
	for cid, c := range m.consumers {
		if c.Subscription == id {
			delete(m.consumers, cid)
		}
	}
	return m.err
}

func (m *memory) ResumeSubscription(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.subs[id]; !ok && m.err == nil {
		return fsm.ErrNotFound
	}
	m.resumed = append(m.resumed, id)
	return m.err
}

func (m *memory) Backfills(context.Context) (map[string]fsm.Backfill, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.backfills, m.err
}

func (m *memory) Hide(_ context.Context, path string, a fsm.Absence) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return false, m.err
	}
	m.hidden = append(m.hidden, path)
	found := false
	for id, c := range m.consumers {
		if c.Primary == path {
			c, e := c.Hide(m.env(), a)
			if m.consumers[id], found = c, true; e.Removed {
				delete(m.consumers, id)
			}
		}
	}
	return found, nil
}

func (m *memory) Callback(_ context.Context, cb fsm.Callback) (fsm.CallbackReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judged++
	if m.err != nil {
		return fsm.CallbackReply{}, m.err
	}
	before, exists := m.consumers[cb.Consumer]
	after, res := before.Callback(m.env(), exists, cb)
	reply := fsm.CallbackReply{Code: res.Code, Path: res.Path, Streams: res.Streams}
	if res.Code != "" {
		return reply, nil
	}
	m.consumers[cb.Consumer] = after
	if res.Removed {
		delete(m.consumers, cb.Consumer)
		reply.Removed = 1
	}
	if res.Wake != nil {
		reply.Wakes = append(reply.Wakes, *res.Wake)
	}
	if res.Idled {
		for path := range after.Links {
			reply.Idle = append(reply.Idle, path)
		}
		slices.Sort(reply.Idle)
	}
	return reply, nil
}

func (m *memory) consumer(id string) (fsm.Consumer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.consumers[id]
	return c, ok
}

// upstream is a stream server that answers HEADs as it is told.
type upstream struct {
	mu sync.Mutex
	// streams by path; shared overrides what Head (not HeadAnew) says; broken ones hang until the asker gives up.
	streams map[string]fsm.StreamInfo
	shared  map[string]fsm.StreamInfo
	broken  map[string]bool
	heads   []string
	// answered, if set, is called when an answer is on its way.
	answered func(head string)
	busy     int
	most     int
}

func (u *upstream) head(ctx context.Context, path, log string, shared bool) (fsm.StreamInfo, error) {
	u.mu.Lock()
	u.heads = append(u.heads, log+path)
	u.busy++
	u.most = max(u.most, u.busy)
	broken := u.broken[path]
	info := u.streams[path]
	if s, ok := u.shared[path]; ok && shared {
		info = s
	}
	answered := u.answered
	u.mu.Unlock()
	if answered != nil {
		answered(log + path)
	}
	defer func() {
		u.mu.Lock()
		u.busy--
		u.mu.Unlock()
	}()
	if broken {
		<-ctx.Done()
		return fsm.StreamInfo{}, ctx.Err()
	}
	return info, nil
}

func (u *upstream) Head(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return u.head(ctx, path, "", true)
}

func (u *upstream) HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return u.head(ctx, path, "anew ", false)
}

func (u *upstream) ParseOffset(s string) (fsm.Offset, error) { return fsm.ParseOffset(s) }

func (u *upstream) asked() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.heads)
}

// recorder is Streams, Deliverer and Targets: it notes what it is told, in order.
type recorder struct {
	mu     sync.Mutex
	calls  []string
	err    error // of Name, Forget and Deleted
	refuse error // of CheckTarget
	// told has each call as well, for those who wait for one.
	told chan string
	// onSubscribed runs within Subscribed.
	onSubscribed func(fsm.Subscription)
}

func (r *recorder) note(format string, args ...any) {
	call := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.calls = append(r.calls, call)
	r.mu.Unlock()
	select {
	case r.told <- call:
	default:
	}
}

func (r *recorder) noted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}

func (r *recorder) BeforeWrite(_ context.Context, path string) { r.note("before %s", path) }
func (r *recorder) Written(path string, tail fsm.Offset, created bool) {
	r.note("written %s %q %v", path, tail, created)
}
func (r *recorder) Refused(path string) { r.note("refused %s", path) }
func (r *recorder) Deleted(_ context.Context, path string) error {
	r.note("deleted %s", path)
	return r.err
}

func (r *recorder) Name(_ context.Context, paths []string) error {
	r.note("name %v", paths)
	return r.err
}

func (r *recorder) Forget(_ context.Context, paths []string) error {
	r.note("forget %v", paths)
	return r.err
}

func (r *recorder) Subscribed(_ context.Context, sub fsm.Subscription) {
	r.note("subscribed %s %s", sub.ID, sub.Pattern)
	if r.onSubscribed != nil {
		r.onSubscribed(sub)
	}
}
func (r *recorder) Watch(primary string, paths []string) { r.note("watch %s %v", primary, paths) }
func (r *recorder) Idle(paths []string)                  { r.note("idle %v", paths) }
func (r *recorder) Gone(path string)                     { r.note("gone %s", path) }
func (r *recorder) Deliver(wakes []fsm.Wake) {
	for _, w := range wakes {
		r.note("deliver %s %d", w.Consumer, w.Epoch)
	}
}
func (r *recorder) CheckTarget(_ context.Context, _ string) error { return r.refuse }
