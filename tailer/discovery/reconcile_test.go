package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

// failing is a Watcher that cannot tell the store at first.
type failing struct {
	nobody
	tells atomic.Int64
}

func (w *failing) Tell(context.Context, fsm.Sighting, bool, bool) (bool, error) {
	if w.tells.Add(1) == 1 {
		return true, errors.New("the store is away")
	}
	return true, nil
}

func TestAWriteThatTheStoreWasNotToldOfReplacesItsStreamOnce(t *testing.T) {
	db, up, w := memstore.New(memstore.Options{}), &one{}, &failing{}
	db.PutSubscription(fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"})
	d := build(t, Config{Store: db.Replica("a", 0), Upstream: up})
	d.watcher = w
	run(t, d)
	if _, _, err := d.store.NoteStream(t.Context(), fsm.NewStream("/a", "1"), time.Hour); err != nil {
		t.Fatal(err)
	}
	var deleted atomic.Int64
	db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Method == "Deleted" {
			deleted.Add(1)
		}
		return nil
	}})
	if err := d.Do(t.Context(), "/a", Evidence{Tail: "1", Made: true}); err == nil {
		t.Error("the failure was not reported")
	}
	eventually(t, "the store is told", func() bool { return w.tells.Load() > 1 && d.Held()["paths"] == 0 })
	if n := deleted.Load(); n != 1 {
		t.Errorf("the stream was replaced %d times", n)
	}
}

func TestAWriteThatTheStoreWasNotToldOfStaysAheadOfWhatCanWait(t *testing.T) {
	for name, linked := range map[string]bool{"of a linked stream": true, "of a new stream": false} {
		t.Run(name, func(t *testing.T) {
			db, w := memstore.New(memstore.Options{}), &failing{}
			db.PutSubscription(fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"})
			d := build(t, Config{Store: db.Replica("a", 0), Upstream: &one{}})
			d.watcher = w
			tick := func(e Evidence) {
				d.queue.add("/a", e, time.Now())
				d.tick(t.Context(), d.queue.next(t.Context(), &d.queue.urgent))
			}
			if linked {
				tick(Evidence{Tail: "1", urgent: true})
				w.tells.Store(0)
			}
			r, _ := d.memory.get("/a")
			tick(Evidence{Tail: "1", First: r.first, onlyWrites: true, urgent: true})
			if n := w.tells.Load(); n != 1 || len(d.queue.urgent.items) != 1 {
				t.Errorf("the store was told %d times, and %d writes are urgent", n, len(d.queue.urgent.items))
			}
			d.queue.add("/told", Evidence{Tail: "1"}, time.Now())
			d.queue.items["/told"].record = time.Now().Add(time.Hour)
			if left := d.queue.close(); !slices.Equal(left, []string{"/a"}) {
				t.Errorf("at the end, %q are left to others", left)
			}
		})
	}
}

func TestWritesHaveASixthMoreRoom(t *testing.T) {
	d := build(t, Config{Store: memstore.New(memstore.Options{}).Replica("a", 0), Upstream: &one{}, Max: 6})
	later := time.Now().Add(time.Hour)
	for i := range 6 {
		if !d.queue.add(fmt.Sprint("/", i), Evidence{}, later) {
			t.Fatalf("path %d has no room", i)
		}
	}
	for _, c := range []struct {
		path        string
		write, room bool
	}{{"/look", false, false}, {"/write", true, true}, {"/another", true, false}} {
		if got := d.queue.add(c.path, Evidence{Tail: "1", onlyWrites: c.write}, later); got != c.room {
			t.Errorf("%s has room: %v", c.path, got)
		}
	}
}
