package discovery

import (
	"context"
	"errors"
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
