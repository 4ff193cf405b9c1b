package memstore_test

import (
	"errors"
	"testing"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

var sub = fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"}

func link(t *testing.T, s *memstore.Store) (fsm.Outcome, error) {
	t.Helper()
	return memstore.Link(t.Context(), s, sub, "/a", fsm.Start, "0001")
}

func TestAReplicaThatDiesBeforeACallHasNotMadeItAndOneThatDiesAfterItHas(t *testing.T) {
	for name, tc := range map[string]struct {
		dies func(h *memstore.Hooks, f func(memstore.Call) error)
		made bool
	}{
		"before": {func(h *memstore.Hooks, f func(memstore.Call) error) { h.Before = f }, false},
		"after":  {func(h *memstore.Hooks, f func(memstore.Call) error) { h.After = f }, true},
	} {
		t.Run(name, func(t *testing.T) {
			db := memstore.New(memstore.Options{})
			s := db.Replica("a", 0)
			var hooks memstore.Hooks
			tc.dies(&hooks, func(c memstore.Call) error {
				if c.Method == "LinkStream" {
					s.Kill()
				}
				return nil
			})
			db.SetHooks(hooks)
			if _, err := link(t, s); tc.made != (err == nil) {
				t.Errorf("the call returned %v", err)
			}
			if _, there := db.Consumer("s:%2Fa"); there != tc.made {
				t.Errorf("the consumer is there: %v", there)
			}
			if err := s.Ping(t.Context()); !errors.Is(err, fsm.ErrUnavailable) {
				t.Errorf("a dead replica's next call returned %v", err)
			}
		})
	}
}

func TestADatabaseThatLosesItsLastChangesCountsALossAndHandsOutNoEpochTwice(t *testing.T) {
	db := memstore.New(memstore.Options{})
	s := db.Replica("a", 0)
	before := db.Snapshot()
	first, err := link(t, s)
	if err != nil {
		t.Fatal(err)
	}
	db.Restore(before)
	if n := s.Ownership().Losses(0); n != 1 {
		t.Errorf("%d losses", n)
	}
	if _, there := db.Consumer("s:%2Fa"); there {
		t.Error("the consumer is still there")
	}
	if stream, err := s.Stream(t.Context(), "/a"); err != nil || stream.Found() || stream.Lost == 0 {
		t.Errorf("%+v, %v", stream, err)
	}
	second, err := link(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if second.Deliveries[0].Epoch <= first.Deliveries[0].Epoch {
		t.Errorf("epoch %d came after %d", second.Deliveries[0].Epoch, first.Deliveries[0].Epoch)
	}
}

func TestADeletionCutShortIsFinishedByTheNext(t *testing.T) {
	db := memstore.New(memstore.Options{})
	s := db.Replica("a", 0)
	db.PutSubscription(sub)
	if _, err := link(t, s); err != nil {
		t.Fatal(err)
	}
	cut := errors.New("cut short")
	db.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Method == "Drop" {
			return cut
		}
		return nil
	}})
	if err := s.DeleteSubscription(t.Context(), "s"); !errors.Is(err, cut) {
		t.Fatalf("got %v", err)
	}
	db.SetHooks(memstore.Hooks{})
	if err := s.DeleteSubscription(t.Context(), "s"); err != nil || len(db.Consumers()) > 0 {
		t.Errorf("%d consumers are left (%v)", len(db.Consumers()), err)
	}
	if o, err := link(t, s); err != nil || o.Linked > 0 {
		t.Errorf("a deleted subscription got a consumer (%v)", err)
	}
}

func TestTheSameSubscriptionAgainIsNoConflict(t *testing.T) {
	s := memstore.New(memstore.Options{}).Replica("a", 0)
	for _, created := range []bool{true, false} {
		if stored, made, err := s.CreateSubscription(t.Context(), sub); err != nil || made != created ||
			stored.Mode == "" {
			t.Errorf("%+v, created %v, %v", stored, made, err)
		}
	}
	other := sub
	other.Mode = "push"
	if _, _, err := s.CreateSubscription(t.Context(), other); !errors.As(err, new(*fsm.ConflictError)) {
		t.Errorf("another mode: %v", err)
	}
}
