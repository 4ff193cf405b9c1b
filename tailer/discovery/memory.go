package discovery

import (
	"slices"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"reveille/fsm"
)

// memoryMax is how many streams are remembered as linked.
const memoryMax = 100_000

// memory remembers streams that are on record and linked, so that a write to one costs no call of the store. What it
// remembers is void once the store may have lost its latest changes to the stream's partition.
type memory struct {
	store Store
	lru   *lru.Cache[string, remembered]
	// removals counts the calls of removed, by partition.
	removals []atomic.Int64
}

// asked is when the store was asked for a stream: how often it had lost changes to the partition, as far as is known,
// and how many of the partition's streams were removed.
type asked struct{ losses, removals int64 }

type remembered struct {
	// first is the record's; linked is the version through which the stream is linked.
	first  time.Time
	linked int64
	// checked is a version of this replica's list of subscriptions in which nothing above linked matches; 0 if none is
	// known. subscribed says whether anything matches there.
	checked    int64
	subscribed bool
	// losses of the partition when the record was read; -1 if it was not.
	losses int64
}

func newMemory(s Store, most int) (*memory, error) {
	c, err := lru.New[string, remembered](most)
	return &memory{store: s, lru: c, removals: make([]atomic.Int64, s.Partitions())}, err
}

// asks returns what put is to be given once the store has answered.
func (m *memory) asks(path string) asked { return asked{m.losses(path), m.removalsOf(path).Load()} }

func (m *memory) removalsOf(path string) *atomic.Int64 { return &m.removals[m.store.PartitionOf(path)] }

// put remembers what the store has returned, unless that may have been removed since the store was asked.
func (m *memory) put(s fsm.Stream, a asked) {
	m.add(s.Path, remembered{first: s.First, linked: s.Linked, losses: a.losses}, a.removals)
}

// add adds an item unless there was a removal since there were so many. It adds first, so that a removal in between
// finds it.
func (m *memory) add(path string, r remembered, removals int64) {
	m.lru.Add(path, r)
	if m.removalsOf(path).Load() != removals {
		m.lru.Remove(path)
	}
}

func (m *memory) remove(path string) { m.lru.Remove(path) }

// removed is remove for a stream that was removed from the store: what the store has returned by now is void.
func (m *memory) removed(path string) {
	m.removalsOf(path).Add(1)
	m.remove(path)
}

func (m *memory) losses(path string) int64 {
	return m.store.Ownership().Losses(m.store.PartitionOf(path))
}

// note remembers a path of which nothing else is known.
func (m *memory) note(path string) { m.lru.ContainsOrAdd(path, remembered{losses: -1}) }

// covers says whether a stream that is linked through a version is linked to all of the subscriptions.
func covers(linked int64, subs []fsm.Subscription) bool {
	return !slices.ContainsFunc(subs, func(sub fsm.Subscription) bool { return sub.Version > linked })
}

// get returns what is remembered of a stream that is linked to all subscriptions that match it, as far as this replica
// knows them.
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

// paths returns the streams of a partition that are remembered, though what is remembered of them may be void.
func (m *memory) paths(partition int) []string {
	return slices.DeleteFunc(m.lru.Keys(), func(path string) bool { return m.store.PartitionOf(path) != partition })
}

// Current says whether what was seen is of the stream that is linked now under its name, as far as this process knows,
// and says nothing of another one; and if so whether any subscription matches it.
func (d *Discovery) Current(path string, e Evidence) (subscribed, current bool) {
	r, ok := d.memory.get(path)
	current = ok && r.first.Equal(e.First) && !e.Made && !e.Stray
	return current && r.subscribed, current
}

// Linked says whether a stream is, as far as this process knows, linked to all subscriptions that match it.
func (d *Discovery) Linked(path string) bool {
	_, ok := d.memory.get(path)
	return ok
}
