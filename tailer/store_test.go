package tailer

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

const testPartitions = 4

// memory is the store of the replica under test, which owns all partitions, and the database behind it.
type memory struct {
	*memstore.Store
	db *memstore.DB
	// other is another replica.
	other *memstore.Store
}

func newMemory() *memory {
	db := memstore.New(memstore.Options{Partitions: testPartitions, Batch: 2})
	m := &memory{db: db, other: db.Replica("other")}
	m.Store = db.Replica("under test", fsm.AllPartitions(testPartitions)...)
	m.setGrace(time.Minute)
	return m
}

func (m *memory) setGrace(grace time.Duration) {
	m.db.SetTiming(fsm.Timing{Waking: time.Minute, Liveness: time.Minute, GoneGrace: grace, GCAfter: time.Hour})
}

// setBefore has f called before every call.
func (m *memory) setBefore(f func(method string)) {
	if f == nil {
		m.db.SetHooks(memstore.Hooks{})
		return
	}
	m.db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		f(c.Method)
		return nil
	}})
}

func (m *memory) setDown(v bool)          { m.db.SetDown(v) }
func (m *memory) count(method string) int { return m.db.Calls(method) }
func (m *memory) total() int              { return m.db.Calls("") }

func newSubscription(id, pattern string) fsm.Subscription {
	return fsm.Subscription{ID: id, Pattern: pattern, Generation: strconv.FormatInt(time.Now().UnixNano(), 36)}
}

// create stores a subscription through the other replica.
func (m *memory) create(t *testing.T, id, pattern string) fsm.Subscription {
	t.Helper()
	sub, _, err := m.other.CreateSubscription(t.Context(), newSubscription(id, pattern))
	if err != nil {
		t.Error(err)
	}
	return sub
}

func (m *memory) consumer(sub, path string) (fsm.Consumer, bool) {
	return m.db.Consumer(fsm.ConsumerID(sub, path))
}

// finish is a worker's synchronous done, to the other replica.
func (m *memory) finish(t *testing.T, w fsm.Delivery) fsm.Outcome {
	t.Helper()
	o, err := m.other.Finish(t.Context(), w.Ref(), w.Streams)
	if err != nil {
		t.Error(err)
	}
	return o
}

// subscribe adds a secondary link, as a callback does.
func (m *memory) subscribe(id, path string, acked fsm.Offset) {
	m.db.ChangeConsumer(id, func(c *fsm.Consumer) { c.Links[path] = fsm.Link{Acked: acked} })
}

// forget has the store come back from a copy from before the events of a stream.
func (m *memory) forget(path, sub string) {
	m.db.ChangeConsumer(fsm.ConsumerID(sub, path), func(c *fsm.Consumer) {
		c.Links = map[string]fsm.Link{path: {Acked: offsetOf(0)}}
	})
	m.db.SetTail(path, path, offsetOf(0))
}

// note puts a stream on record as one that is awaited.
func (m *memory) note(t *testing.T, path string) {
	t.Helper()
	if _, _, err := m.NoteStream(t.Context(), fsm.NewStream(path, ""), time.Minute); err != nil {
		t.Fatal(err)
	}
}

func (m *memory) remove(id string) { m.db.LoseConsumer(id) }

func (m *memory) knows(path string) (known, awaited bool) {
	s := m.db.Records()[path]
	return s.Present(), s.Found() && !s.Present()
}

// own makes the replica under test the owner of just these partitions.
func (m *memory) own(partitions ...int) { m.Own(partitions...) }

func (m *memory) ownAll() { m.own(fsm.AllPartitions(testPartitions)...) }

// countLoss tells the replica that the store may have lost its latest changes of a stream.
func (m *memory) countLoss(path string) { m.Ownership().CountLoss(m.PartitionOf(path)) }

// forgetStream loses everything about a stream, as a store does that comes back without its latest changes.
func (m *memory) forgetStream(path string) {
	m.db.LoseStream(path)
	m.db.Restart()
}

// fallBack has a consumer's ack lost.
func (m *memory) fallBack(sub, path string) {
	m.db.ChangeConsumer(fsm.ConsumerID(sub, path), func(c *fsm.Consumer) {
		maps.DeleteFunc(c.Links, func(p string, _ fsm.Link) bool { return p != path })
		c.Links[path] = fsm.Link{Acked: fsm.Start, Tail: c.Links[path].Tail}
	})
}

func (m *memory) hinted(h fsm.Hint) bool { return slices.Contains(m.Hints(), h) }
