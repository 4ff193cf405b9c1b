package discovery

import (
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/memstore"
)

func TestABackfillLeavesTheQueueToOthersAndIsTakenUpAfterACrash(t *testing.T) {
	const streams = 500
	db := memstore.New(memstore.Options{})
	up := &server{answers: make(chan struct{})}
	d := start(t, db, up, queueMax)
	for n := range streams {
		s := fsm.NewStream(path(n), "1")
		if _, noted, err := d.store.NoteStream(t.Context(), s, time.Hour); !noted || err != nil {
			t.Fatal(noted, err)
		}
	}
	// Its creator's replica has died.
	sub := fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"}
	if _, _, err := db.Replica("dead").CreateSubscription(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every worker has a stream to ask for", func() bool { return up.asked.Load() == workers })
	if n := d.Held()["paths"]; n > backfillWidth {
		t.Errorf("%d streams are in the queue", n)
	}
	eventually(t, "its size is stored", func() bool { return db.Backfills()[sub.Generation].Total == streams })
	close(up.answers)
	eventually(t, "the backfill is over", func() bool { return len(db.Backfills()) == 0 })
	if n := len(db.Consumers()); n != streams {
		t.Errorf("%d of %d streams are linked", n, streams)
	}
}
