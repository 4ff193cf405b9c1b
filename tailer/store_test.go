package tailer

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"reveille/fsm"
)

const testPartitions = 4

// memory is a Store in memory, built on fsm's transitions.
type memory struct {
	grace   time.Duration
	catalog *fsm.Catalog
	// ownership is that of the replica under test; hints are those it sent to others.
	ownership *fsm.Ownership

	mu        sync.Mutex
	hints     []fsm.Hint
	version   int64
	subs      map[string]fsm.Subscription
	consumers map[string]fsm.Consumer
	noted     map[[2]string]fsm.Offset // partition, path
	watched   map[int]map[string]int64
	seq       int64
	known     map[string]fsm.Known
	backfills map[string]fsm.Backfill
	registry  fsm.Offset
	wakeID    int
	calls     map[string]int
	down      bool
	// lost is when changes may have been lost.
	lost time.Time
	// stale keeps the catalog from following changes until RefreshCatalog.
	stale bool
	// before is called at the beginning of every method.
	before func(method string)
}

func newMemory() *memory {
	m := &memory{
		catalog: fsm.NewCatalog(), ownership: fsm.NewOwnership(testPartitions, fsm.AllPartitions(testPartitions)...), subs: map[string]fsm.Subscription{}, consumers: map[string]fsm.Consumer{},
		noted: map[[2]string]fsm.Offset{}, watched: map[int]map[string]int64{}, known: map[string]fsm.Known{},
		backfills: map[string]fsm.Backfill{}, registry: fsm.Start, calls: map[string]int{}, grace: time.Minute,
	}
	m.catalog.Replace(nil, 0)
	return m
}

func (m *memory) env() fsm.Env {
	m.wakeID++
	return fsm.Env{Now: time.Now(), WakeID: fmt.Sprintf("w_%d", m.wakeID), Timing: fsm.Timing{
		Waking: time.Minute, Liveness: time.Minute, GoneGrace: m.grace, GCAfter: time.Hour,
	}}
}

func (m *memory) setBefore(f func(method string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = f
}

func (m *memory) enter(method string) (func(), error) {
	m.mu.Lock()
	before := m.before
	m.mu.Unlock()
	if before != nil {
		before(method)
	}
	m.mu.Lock()
	m.calls[method]++
	if m.down {
		m.mu.Unlock()
		return nil, fsm.ErrUnavailable
	}
	return func() {
		m.rewatch()
		m.mu.Unlock()
	}, nil
}

// rewatch brings the lists of watched streams in step with the consumers.
func (m *memory) rewatch() {
	now := map[int]map[string]int64{}
	for _, id := range slices.Sorted(maps.Keys(m.consumers)) {
		c := m.consumers[id]
		p := m.PartitionOf(c.Primary)
		if now[p] == nil {
			now[p] = map[string]int64{}
		}
		for path := range c.Links {
			seq, ok := m.watched[p][path]
			if !ok {
				if seq, ok = now[p][path]; !ok {
					m.seq++
					seq = m.seq
				}
			}
			now[p][path] = seq
		}
	}
	m.watched = now
}

func (m *memory) apply(o *fsm.Outcome, c fsm.Consumer, e fsm.Effects) {
	if e.Wake != nil {
		o.Wakes = append(o.Wakes, *e.Wake)
	}
	if e.Idled {
		o.Idle = append(o.Idle, slices.Collect(maps.Keys(c.Links))...)
	}
	if e.Removed {
		o.Removed++
		delete(m.consumers, c.ID)
		return
	}
	m.consumers[c.ID] = c
}

func (m *memory) count(method string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[method]
}

func (m *memory) total() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.calls {
		n += c
	}
	return n
}

func (m *memory) setDown(v bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = v
}

func (m *memory) consumer(sub, path string) (fsm.Consumer, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.consumers[fsm.ConsumerID(sub, path)]
	return c, ok
}

// finish is a worker's synchronous done.
func (m *memory) finish(w fsm.Wake) fsm.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	var o fsm.Outcome
	if c, ok := m.consumers[w.Consumer]; ok {
		c, e := c.Finish(m.env(), w.Ref(), w.Streams)
		m.apply(&o, c, e)
	}
	return o
}

// subscribe adds a secondary link, as a callback does.
func (m *memory) subscribe(id, path string, acked fsm.Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.consumers[id]
	c.Links = maps.Clone(c.Links)
	c.Links[path] = fsm.Link{Acked: acked}
	m.consumers[id] = c
	m.rewatch()
}

// forget has the store come back from a copy from before the events of a stream.
func (m *memory) forget(path, sub string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := fsm.ConsumerID(sub, path)
	c := m.consumers[id]
	c.Links = map[string]fsm.Link{path: {Acked: offsetOf(0), Tail: offsetOf(0)}}
	m.consumers[id] = c
	m.noted[noteKey(m.PartitionOf(path), path)] = offsetOf(0)
}

func (m *memory) remove(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.consumers, id)
	m.rewatch()
}

func (m *memory) knows(path string) (known, awaited bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.known[path]
	return ok && !k.Awaited, ok && k.Awaited
}

func (m *memory) Catalog() *fsm.Catalog { return m.catalog }

func (m *memory) replace() {
	m.catalog.Replace(slices.Collect(maps.Values(m.subs)), m.version)
}

func (m *memory) CreateSubscription(_ context.Context, sub fsm.Subscription) (fsm.Subscription, bool, error) {
	done, err := m.enter("CreateSubscription")
	if err != nil {
		return sub, false, err
	}
	defer done()
	m.version++
	sub.Generation = fmt.Sprint(m.version)
	sub.CreatedAt = time.Now()
	m.subs[sub.ID] = sub
	m.backfills[sub.ID] = fsm.Backfill{}
	if !m.stale {
		m.replace()
	}
	return sub, true, nil
}

func (m *memory) DeleteSubscription(_ context.Context, id string) error {
	done, err := m.enter("DeleteSubscription")
	if err != nil {
		return err
	}
	defer done()
	m.version++
	delete(m.subs, id)
	delete(m.backfills, id)
	maps.DeleteFunc(m.consumers, func(_ string, c fsm.Consumer) bool { return c.Subscription == id })
	m.replace()
	return nil
}

func (m *memory) ResumeSubscription(context.Context, string) error { return nil }

func (m *memory) RefreshCatalog(context.Context) error {
	done, err := m.enter("RefreshCatalog")
	if err != nil {
		return err
	}
	defer done()
	m.replace()
	return nil
}

func (m *memory) Backfills(context.Context) (map[string]fsm.Backfill, error) {
	done, err := m.enter("Backfills")
	if err != nil {
		return nil, err
	}
	defer done()
	return maps.Clone(m.backfills), nil
}

func (m *memory) SetBackfill(_ context.Context, sub fsm.Subscription, b fsm.Backfill) error {
	done, err := m.enter("SetBackfill")
	if err != nil {
		return err
	}
	defer done()
	if _, ok := m.backfills[sub.ID]; ok {
		m.backfills[sub.ID] = b
	}
	return nil
}

func (m *memory) EndBackfill(_ context.Context, sub fsm.Subscription) error {
	done, err := m.enter("EndBackfill")
	if err != nil {
		return err
	}
	defer done()
	delete(m.backfills, sub.ID)
	return nil
}

func (m *memory) Partitions() int { return testPartitions }

func (m *memory) PartitionOf(path string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(path))
	return int(h.Sum32() % testPartitions)
}

func noteKey(partition int, path string) [2]string { return [2]string{fmt.Sprint(partition), path} }

func (m *memory) note(partition int, path string, tail fsm.Offset) fsm.Offset {
	k := noteKey(partition, path)
	if tail.After(m.noted[k]) {
		m.noted[k] = tail
	}
	return m.noted[k]
}

func (m *memory) Link(_ context.Context, sub fsm.Subscription, path string, acked, tail fsm.Offset) (o fsm.Outcome, err error) {
	done, err := m.enter("Link")
	if err != nil {
		return o, err
	}
	defer done()
	if s, ok := m.subs[sub.ID]; !ok || s.Generation != sub.Generation {
		return o, nil
	}
	c, ok := m.consumers[fsm.ConsumerID(sub.ID, path)]
	if !ok {
		c = fsm.NewConsumer(sub, path, acked, 0)
		o.Linked++
	}
	m.note(m.PartitionOf(path), path, tail)
	c, e := c.Observe(m.env(), path, tail)
	m.apply(&o, c, e)
	return o, nil
}

func (m *memory) Observe(_ context.Context, partition int, path string, tail fsm.Offset) (obs fsm.Observation, err error) {
	done, err := m.enter("Observe")
	if err != nil {
		return obs, err
	}
	defer done()
	obs.Busy = true
	for _, id := range slices.Sorted(maps.Keys(m.consumers)) {
		c := m.consumers[id]
		if _, ok := c.Links[path]; !ok || m.PartitionOf(c.Primary) != partition {
			continue
		}
		obs.Watched = true
		c, e := c.Observe(m.env(), path, tail)
		m.apply(&obs.Outcome, c, e)
		obs.Busy = obs.Busy && c.State != fsm.Idle
	}
	if obs.Watched {
		obs.Tail = m.note(partition, path, tail)
	}
	return obs, nil
}

func (m *memory) Hide(_ context.Context, path string, a fsm.Absence) (found bool, err error) {
	done, err := m.enter("Hide")
	if err != nil {
		return false, err
	}
	defer done()
	for _, c := range m.consumers {
		if c.Primary == path {
			c, e := c.Hide(m.env(), a)
			m.apply(&fsm.Outcome{}, c, e)
			found = true
		}
	}
	return found, nil
}

func (m *memory) Restart(_ context.Context, partition int, path string, was, tail fsm.Offset) (o fsm.Outcome, err error) {
	done, err := m.enter("Restart")
	if err != nil {
		return o, err
	}
	defer done()
	if m.noted[noteKey(partition, path)] != was {
		return o, nil
	}
	m.noted[noteKey(partition, path)] = tail
	for _, c := range m.consumers {
		if m.PartitionOf(c.Primary) != partition {
			continue
		}
		var e fsm.Effects
		if c.Primary == path {
			c = fsm.NewConsumer(m.subs[c.Subscription], path, fsm.Start, c.Epoch)
			c, e = c.Observe(m.env(), path, tail)
		} else {
			c, e = c.Restart(m.env(), path, tail)
		}
		m.apply(&o, c, e)
	}
	return o, nil
}

func (m *memory) WatchedIn(_ context.Context, path string) (partitions []int, err error) {
	done, err := m.enter("WatchedIn")
	if err != nil {
		return nil, err
	}
	defer done()
	for p := range testPartitions {
		if slices.ContainsFunc(slices.Collect(maps.Values(m.consumers)), func(c fsm.Consumer) bool {
			_, linked := c.Links[path]
			return m.PartitionOf(c.Primary) == p && (linked || c.Primary == path)
		}) {
			partitions = append(partitions, p)
		}
	}
	return partitions, nil
}

func (m *memory) Deleted(_ context.Context, partition int, path string) (o fsm.Outcome, err error) {
	done, err := m.enter("Deleted")
	if err != nil {
		return o, err
	}
	defer done()
	delete(m.noted, noteKey(partition, path))
	for id, c := range m.consumers {
		switch {
		case m.PartitionOf(c.Primary) != partition:
		case c.Primary == path:
			delete(m.consumers, id)
			o.Removed++
		default:
			c, e := c.Restart(m.env(), path, "")
			m.apply(&o, c, e)
		}
	}
	return o, nil
}

func (m *memory) WatchedSince(_ context.Context, partition int, seq int64) ([]fsm.Watched, error) {
	done, err := m.enter("WatchedSince")
	if err != nil {
		return nil, err
	}
	defer done()
	var list []fsm.Watched
	for path, s := range m.watched[partition] {
		if s > seq {
			list = append(list, fsm.Watched{Path: path, Tail: m.noted[noteKey(partition, path)], Seq: s})
		}
	}
	slices.SortFunc(list, func(a, b fsm.Watched) int { return int(a.Seq - b.Seq) })
	return list[:min(len(list), 2)], nil // in batches
}

func (m *memory) NoteKnown(_ context.Context, path string, awaited bool) (version int64, news bool, err error) {
	done, err := m.enter("NoteKnown")
	if err != nil {
		return 0, false, err
	}
	defer done()
	k, ok := m.known[path]
	news = !ok || k.Awaited && !awaited
	switch {
	case !ok:
		m.known[path] = fsm.Known{Path: path, At: time.Now(), Awaited: awaited}
	case k.Awaited && !awaited:
		k.Awaited = false
		m.known[path] = k
	}
	return m.version, news, nil
}

func (m *memory) Known(_ context.Context, path string) (fsm.Known, bool, error) {
	done, err := m.enter("Known")
	if err != nil {
		return fsm.Known{}, false, err
	}
	defer done()
	k, ok := m.known[path]
	return k, ok, nil
}

func (m *memory) LostAgo(context.Context, string) (time.Duration, bool, error) {
	done, err := m.enter("LostAgo")
	if err != nil {
		return 0, false, err
	}
	defer done()
	return time.Since(m.lost), !m.lost.IsZero(), nil
}

func (m *memory) ForgetKnown(_ context.Context, path string, onlyAwaited bool) error {
	done, err := m.enter("ForgetKnown")
	if err != nil {
		return err
	}
	defer done()
	if k, ok := m.known[path]; ok && (k.Awaited || !onlyAwaited) {
		delete(m.known, path)
	}
	return nil
}

func (m *memory) ScanKnown(_ context.Context, partition int, _ string) ([]fsm.Known, string, error) {
	done, err := m.enter("ScanKnown")
	if err != nil {
		return nil, "", err
	}
	defer done()
	var list []fsm.Known
	for path, k := range m.known {
		if m.PartitionOf(path) == partition {
			list = append(list, k)
		}
	}
	return list, "0", nil
}

func (m *memory) RegistryOffset(context.Context) (fsm.Offset, error) {
	done, err := m.enter("RegistryOffset")
	if err != nil {
		return "", err
	}
	defer done()
	return m.registry, nil
}

func (m *memory) MoveRegistryOffset(_ context.Context, from, to fsm.Offset) (bool, error) {
	done, err := m.enter("MoveRegistryOffset")
	if err != nil {
		return false, err
	}
	defer done()
	if from == fsm.Start && m.registry == "" {
		m.registry = fsm.Start
	}
	if m.registry != from {
		return false, nil
	}
	m.registry = to
	return true, nil
}

func (m *memory) Ownership() *fsm.Ownership { return m.ownership }

func (m *memory) Hint(h fsm.Hint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hints = append(m.hints, h)
}
