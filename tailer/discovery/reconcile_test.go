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

// down is a stream server that cannot be asked.
type down struct{ server }

func (*down) LookNow(context.Context, string) (fsm.StreamInfo, error) {
	return fsm.StreamInfo{}, errors.New("upstream is down")
}

// TestAFailedLookLeavesTheUrgentLane holds that a write whose stream must be looked at waits for upstream in the lane
// of what can wait, with its tail, and takes no worker from other writes.
func TestAFailedLookLeavesTheUrgentLane(t *testing.T) {
	d := build(t, Config{Store: memstore.New(memstore.Options{}).Replica("a", 0), Upstream: &down{}})
	d.Written(fsm.Write{Path: "/a", First: time.Now()}, "1", false)
	if len(d.queue.urgent.items) == 0 {
		t.Fatal("the write is not urgent")
	}
	d.tick(t.Context(), d.queue.next(t.Context(), &d.queue.urgent))
	urgent, other := d.queue.urgent.items, d.queue.other.items
	if len(urgent) > 0 || len(other) != 1 || other[0].evidence.Tail != "1" {
		t.Errorf("urgent are %d, and others %+v", len(urgent), other)
	}
}

// looking is a Watcher that notes the streams to look at.
type looking struct {
	nobody
	at []string
}

func (w *looking) Look(path string) { w.at = append(w.at, path) }

// TestAWriteWithoutRoomIsLookedFor holds that the watch of its stream looks, here and at the owner of the partition.
func TestAWriteWithoutRoomIsLookedFor(t *testing.T) {
	store, w := memstore.New(memstore.Options{}).Replica("a", 0), &looking{}
	d := build(t, Config{Store: store, Upstream: &one{}, Max: 6})
	d.watcher = w
	for i := range 8 {
		d.Written(fsm.Write{Path: fmt.Sprint("/", i), First: time.Now()}, "1", false)
	}
	if hints := store.Hints(); !slices.Equal(w.at, []string{"/7"}) ||
		!slices.Equal(hints, []fsm.Hint{{Kind: fsm.HintLook, Path: "/7"}}) {
		t.Errorf("looked at is %q, and the hints are %+v", w.at, hints)
	}
}
