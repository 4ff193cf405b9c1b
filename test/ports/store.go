package ports

import (
	"context"
	"fmt"
	"sync"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

// Partitions is how many partitions a memory has.
const Partitions = 4

// Memory is the store of the replica under test and the database behind it. Its catalog follows what others do to the
// subscriptions only when it is refreshed, so a read that forgets that sees nothing.
type Memory struct {
	*memstore.Store
	DB *memstore.DB

	mu  sync.Mutex
	err error // of every call, if set
	// Cut makes the next clearing away of consumers fail.
	Cut bool
	// Tallied is how many consumers a tally looks at, if it is not 0.
	Tallied int
	// HiddenStreams is which streams Hide was called for.
	HiddenStreams []string
	// Begun is what the next callback finds left to do, whatever becomes of it: wakes for a stream that was made anew.
	Begun []fsm.Delivery
}

// Callback adds Begun to what there is left to do.
func (m *Memory) Callback(ctx context.Context, cb fsm.Callback) (fsm.CallbackReply, error) {
	reply, err := m.Store.Callback(ctx, cb)
	m.mu.Lock()
	defer m.mu.Unlock()
	reply.Deliveries = append(reply.Deliveries, m.Begun...)
	m.Begun = nil
	return reply, err
}

// TallyConsumers looks at no more than Tallied consumers: of the first subscriptions first.
func (m *Memory) TallyConsumers(ctx context.Context, subs []fsm.Subscription) ([]fsm.Tally, error) {
	tallies, err := m.Store.TallyConsumers(ctx, subs)
	for i, left := 0, m.Tallied; m.Tallied > 0 && i < len(tallies); i++ {
		t := &tallies[i]
		if left -= t.Consumers + t.Asides; left < 0 {
			*t, left = fsm.Tally{Consumers: t.Consumers, Asides: t.Asides, Partial: true}, 0
		}
	}
	return tallies, err
}

func newMemory(clock func() time.Time) *Memory {
	m := &Memory{DB: memstore.New(memstore.Options{
		Partitions: Partitions, Batch: 3, Draw: func() memstore.Draw { return memstore.Draw{Now: clock()} },
	})}
	m.Store = m.DB.Replica("under test", fsm.AllPartitions(Partitions)...)
	m.SetStale(true)
	m.DB.SetHooks(memstore.Hooks{Before: m.before, After: m.after})
	return m
}

func (m *Memory) before(c memstore.Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.err != nil:
		return m.err
	case c.Method == "Drop" && m.Cut:
		m.Cut = false
		return fsm.ErrUnavailable
	}
	return nil
}

func (m *Memory) after(c memstore.Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch c.Method {
	case "Hide":
		m.HiddenStreams = append(m.HiddenStreams, c.Args[0].(string))
	}
	return nil
}

// Fail makes every call return an error.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// Lookup returns a consumer of the database.
func (m *Memory) Lookup(id string) (fsm.Consumer, bool) { return m.DB.Consumer(id) }

// Ready is a Config.Ready.
func (m *Memory) Ready(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return fmt.Errorf("redis: %w", m.err)
	}
	return nil
}
