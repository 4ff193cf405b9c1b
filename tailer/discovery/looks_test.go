package discovery

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

// one is a stream server whose streams are all there, until they are all gone.
type one struct {
	server
	gone atomic.Bool
}

func (u *one) Look(context.Context, string) (fsm.StreamInfo, error) {
	u.asked.Add(1)
	if u.gone.Load() {
		return fsm.StreamInfo{}, nil
	}
	return fsm.StreamInfo{Exists: true, Tail: "1"}, nil
}

func (u *one) LookNow(ctx context.Context, path string) (fsm.StreamInfo, error) {
	return u.Look(ctx, path)
}

// A stream that nobody is subscribed to is watched by nobody either: what deletes it past the gateway goes unseen.
func TestAStreamThatNobodyIsSubscribedToLeavesTheRecordSoonAfterItIsGone(t *testing.T) {
	const path, lived = "/a", 10 * time.Minute
	for name, subscribed := range map[string]bool{"nobody ever was": false, "somebody was": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, up := memstore.New(memstore.Options{}), &one{}
				store := db.Replica("a", 0)
				d := build(t, Config{Store: store, Upstream: up})
				run(t, d)
				if subscribed {
					if _, _, err := d.Subscribe(t.Context(), fsm.Subscription{ID: "s", Pattern: "/*"}); err != nil {
						t.Fatal(err)
					}
				}
				d.Enqueue(path, Evidence{})
				time.Sleep(lived)
				if !db.Records()[path].Present() {
					t.Fatal("it is not on record")
				}
				if n := up.asked.Load(); n > 10 {
					t.Errorf("it was looked at %d times in %s", n, lived)
				}
				if err := store.DeleteSubscription(t.Context(), "s"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute) // the deletion is noticed
				asked := up.asked.Load()
				time.Sleep(lived / 2)
				if n := up.asked.Load() - asked; n > 1 {
					t.Errorf("it was looked at %d times in %s", n, lived/2)
				}
				up.gone.Store(true)
				time.Sleep(2*lived + d.cfg.GoneGrace + 2*time.Minute)
				if s := db.Records()[path]; s.Found() {
					t.Errorf("it is on record until %s", s.Until)
				}
			})
		})
	}
}

func TestAWriteWhoseClientGaveUpLeavesTheNextOneNoLongerWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New(memstore.Options{})
		store := db.Replica("a", 0)
		if err := store.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		d := build(t, Config{Store: store, Upstream: &empty{}})
		db.SetDown(true)
		began := time.Now()
		if !d.BeforeWrite(t.Context(), "/a", true).Kept {
			t.Fatal("the first write was not held")
		}
		alone := time.Since(began)

		db.SetDown(false)
		d.pending.change("/a", func(s *pendingWrites) { *s = pendingWrites{} })
		if err := store.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		db.SetDown(true)
		began = time.Now()
		impatient, cancel := context.WithTimeout(t.Context(), alone/2)
		defer cancel()
		d.BeforeWrite(impatient, "/a", true)
		// A heartbeat that nobody hears, as every replica tries one now and then.
		_ = store.Join(t.Context())
		d.BeforeWrite(t.Context(), "/a", true)
		if took := time.Since(began); took > alone+2*time.Second {
			t.Errorf("after one that gave up it took %s, alone %s", took, alone)
		}
	})
}
