package discovery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

func TestABackfillLeavesTheQueueToOthersAndIsTakenUpAfterACrash(t *testing.T) {
	const streams = 500
	db := memstore.New(memstore.Options{})
	up := &server{answers: make(chan struct{})}
	d := start(t, db, up, queueMax)
	for n := range streams {
		s := fsm.NewStream(path(n), "1")
		if _, noted, err := d.store.NoteStream(t.Context(), s, time.Minute); !noted || err != nil {
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

func TestNothingIsKeptOfASubscriptionOnceItsCreatorIsAnsweredAndItsBackfillIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/a"
		db := memstore.New(memstore.Options{})
		db.PutSubscription(fsm.Subscription{ID: "another", Generation: "another", Pattern: "/**"})
		up := &server{answers: make(chan struct{})}
		d, err := New(Config{
			Store: db.Replica("a", 0), Upstream: up, Watcher: nobody{}, Outcomes: noOutcomes(), Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		unanswered := func() (n int) {
			d.backfills.unanswered.Range(func(any, any) bool { n++; return true })
			return n
		}
		// The stream is watched already, with a tail that is noted.
		d.Enqueue(path, Evidence{})
		up.answers <- struct{}{}
		synctest.Wait()
		db.SetTail(path, path, "1")

		sub := fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**"}
		if _, created, err := d.Subscribe(ctx, sub); err != nil || !created {
			t.Fatal(created, err)
		}
		if n := unanswered(); n != 0 {
			t.Errorf("%d subscriptions pass for unanswered after the answer", n)
		}
		d.backfills.mu.Lock()
		for _, b := range d.backfills.running {
			if tail := b.watched[path].NotedTail; tail != "1" {
				t.Errorf("the tail from before the answer is %q", tail)
			}
		}
		if n := len(d.backfills.running); n != 1 {
			t.Errorf("%d backfills wait for the HEAD", n)
		}
		d.backfills.mu.Unlock()
		close(up.answers)
		time.Sleep(time.Minute)
		for what, n := range d.Held() {
			if n > 0 {
				t.Errorf("%d %s are kept in memory", n, what)
			}
		}
		if c, _ := db.Consumer(fsm.ConsumerID("s", path)); c.Links[path].Acked != "1" {
			t.Errorf("the consumer is %+v", c)
		}

		db.SetDown(true)
		if _, _, err := d.Subscribe(ctx, fsm.Subscription{ID: "t", Generation: "h", Pattern: "/**"}); err == nil {
			t.Error("the store is away, but the subscription is there")
		}
		if n := unanswered(); n != 0 {
			t.Errorf("%d subscriptions pass for unanswered that are not there", n)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
