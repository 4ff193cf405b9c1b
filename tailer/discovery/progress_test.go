package discovery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/memstore"
)

func TestABackfillThatWaitsForAStreamTellsItsProgressOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New(memstore.Options{})
		d, err := New(Config{
			Store: db.Replica("a", 0), Upstream: &server{answers: make(chan struct{})}, Watcher: nobody{},
			Outcomes: nobody{}, Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.store.NoteStream(t.Context(), fsm.NewStream("/a", "1"), time.Hour); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		sub := fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"}
		if _, created, err := d.Subscribe(ctx, sub); err != nil || !created {
			t.Fatal(created, err)
		}
		time.Sleep(time.Minute)
		if n, under := db.Calls("SetBackfill"), db.Backfills()["g"]; n != 1 || under != (fsm.Backfill{Total: 1}) {
			t.Errorf("it was told %d times: %+v", n, under)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
