package httpapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

// memoryPartitions is how many partitions a memory has.
const memoryPartitions = 4

// memory is the store of the replica under test and the database behind it. Its catalog follows what others do to the
// subscriptions only when it is refreshed, so a read that forgets that sees nothing.
type memory struct {
	*memstore.Store
	db *memstore.DB

	mu  sync.Mutex
	err error // of every call, if set
	// cut makes the next clearing away of consumers fail.
	cut bool
	// hidden is which streams Hide was called for.
	hidden []string
	// begun is what the next callback finds left to do, whatever becomes of it: wakes for a stream that was made anew.
	begun []fsm.Wake
}

func (m *memory) Callback(ctx context.Context, cb fsm.Callback) (fsm.CallbackReply, error) {
	reply, err := m.Store.Callback(ctx, cb)
	m.mu.Lock()
	defer m.mu.Unlock()
	reply.Wakes = append(reply.Wakes, m.begun...)
	m.begun = nil
	return reply, err
}

func newMemory(clock func() time.Time) *memory {
	m := &memory{db: memstore.New(memstore.Options{
		Partitions: memoryPartitions, Batch: 3, Draw: func() memstore.Draw { return memstore.Draw{Now: clock()} },
	})}
	m.Store = m.db.Replica("under test", fsm.AllPartitions(memoryPartitions)...)
	m.SetStale(true)
	m.db.SetHooks(memstore.Hooks{Before: m.before, After: m.after})
	return m
}

func (m *memory) before(c memstore.Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.err != nil:
		return m.err
	case c.Method == "Drop" && m.cut:
		m.cut = false
		return fsm.ErrUnavailable
	}
	return nil
}

func (m *memory) after(c memstore.Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch c.Method {
	case "Hide":
		m.hidden = append(m.hidden, c.Args[0].(string))
	}
	return nil
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *memory) consumer(id string) (fsm.Consumer, bool) { return m.db.Consumer(id) }

// ready is a Config.Ready.
func (m *memory) ready(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return fmt.Errorf("redis: %w", m.err)
	}
	return nil
}
