package discovery

import (
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

func TestABackfillThatWaitsForAStreamTellsItsProgressOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New(memstore.Options{})
		d := build(t, Config{Store: db.Replica("a", 0), Upstream: &server{answers: make(chan struct{})}})
		if _, _, err := d.store.NoteStream(t.Context(), fsm.NewStream("/a", "1"), time.Hour); err != nil {
			t.Fatal(err)
		}
		run(t, d)
		sub := fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"}
		if _, created, err := d.Subscribe(t.Context(), sub); err != nil || !created {
			t.Fatal(created, err)
		}
		time.Sleep(time.Minute)
		if n, under := db.Calls("SetBackfill"), db.Backfills()["g"]; n != 1 || under != (fsm.Backfill{Total: 1}) {
			t.Errorf("it was told %d times: %+v", n, under)
		}
	})
}
