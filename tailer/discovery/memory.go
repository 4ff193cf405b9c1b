package discovery

import (
	"slices"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"reveille/fsm"
)

// memoryMax bounds the streams that are remembered as linked.
const memoryMax = 100_000

// memory remembers streams that are on record and linked, so that a write to one needs no store call. What it remembers
// is void once the store may have lost its latest changes to the stream's partition.
type memory struct {
	store Store
	lru   *lru.Cache[string, remembered]
	// removals counts the calls of removed, by partition.
	removals []atomic.Int64
}

// asked is what was known when the store was asked for a stream: the losses of the partition's changes, and the count
// of its removed streams.
type asked struct{ losses, removals int64 }

type remembered struct {
	// first is the First of the record. linked is the version through which the stream is linked.
	first  time.Time
	linked int64
	// checked is a version of this replica's list of subscriptions, in which nothing above linked matches; 0 if none is
	// known. The flag subscribed says whether anything matches there.
	checked    int64
	subscribed bool
	// losses is the loss count of the partition when the record was read; -1 if it was not read.
	losses int64
}

func newMemory(s Store, most int) (*memory, error) {
	c, err := lru.New[string, remembered](most)
	return &memory{store: s, lru: c, removals: make([]atomic.Int64, s.Partitions())}, err
}

// asks returns what put needs once the store has answered.
func (m *memory) asks(path string) asked { return asked{m.losses(path), m.removalsOf(path).Load()} }

func (m *memory) removalsOf(path string) *atomic.Int64 { return &m.removals[m.store.PartitionOf(path)] }

// put remembers what the store has returned, unless the stream may have been removed since the store was asked.
func (m *memory) put(s fsm.Stream, a asked) {
	m.add(s.Path, remembered{first: s.First, linked: s.Linked, losses: a.losses}, a.removals)
}

// add adds an item unless the count of removals has changed. It adds first, so that a removal in between finds the
// item.
func (m *memory) add(path string, r remembered, removals int64) {
	m.lru.Add(path, r)
	if m.removalsOf(path).Load() != removals {
		m.lru.Remove(path)
	}
}

func (m *memory) remove(path string) { m.lru.Remove(path) }

// removed is remove for a stream that was removed from the store. Answers that the store gave before are void.
func (m *memory) removed(path string) {
	m.removalsOf(path).Add(1)
	m.remove(path)
}

func (m *memory) losses(path string) int64 {
	return m.store.Ownership().Losses(m.store.PartitionOf(path))
}

// note remembers a path, and nothing else about its stream.
func (m *memory) note(path string) { m.lru.ContainsOrAdd(path, remembered{losses: -1}) }

// covers says whether a stream that is linked through a version is linked to all of the subscriptions.
func covers(linked int64, subs []fsm.Subscription) bool {
	return !slices.ContainsFunc(subs, func(sub fsm.Subscription) bool { return sub.Version > linked })
}

// get returns what is remembered of a stream. It does so only if, as far as this replica knows, the stream is linked to
// all subscriptions that match it.
func (m *memory) get(path string) (remembered, bool) {
	removals := m.removalsOf(path).Load()
	r, ok := m.lru.Get(path)
	if !ok || r.losses != m.losses(path) {
		return remembered{}, false
	}
	version := m.store.Catalog().Version()
	if r.checked != version {
		subs := m.store.Catalog().Match(path)
		if !covers(r.linked, subs) {
			return remembered{}, false
		}
		r.checked, r.subscribed = version, len(subs) > 0
		m.add(path, r, removals)
	}
	return r, true
}

// paths returns the remembered streams of a partition. What is remembered of them may be void.
func (m *memory) paths(partition int) []string {
	return slices.DeleteFunc(m.lru.Keys(), func(path string) bool { return m.store.PartitionOf(path) != partition })
}

// current says whether evidence is about the stream that is linked now under its name, and about no other, as far as
// this process knows. If so, subscribed says whether any subscription matches the stream.
func (d *Discovery) current(path string, e Evidence) (subscribed, current bool) {
	r, ok := d.memory.get(path)
	current = ok && r.first.Equal(e.First) && !e.Made && !e.Stray
	return current && r.subscribed, current
}

// Linked says whether a stream is, as far as this process knows, linked to all subscriptions that match it.
func (d *Discovery) Linked(path string) bool {
	_, ok := d.memory.get(path)
	return ok
}
