package redisstore_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// riding repeats calls for as long as they say that the store is not available.
type riding struct {
	t *testing.T
	// turned counts the calls that were turned away, done those that were not.
	turned, done *atomic.Int64
}

func (r riding) out(what string, call func() error) bool {
	deadline := time.Now().Add(3 * harness.Wait) // as long as the whole move takes
	for {
		err := call()
		switch {
		case err == nil:
			r.done.Add(1)
			return true
		case !errors.Is(err, fsm.ErrUnavailable):
			r.t.Errorf("%s: %v", what, err)
			return false
		case time.Now().After(deadline):
			r.t.Errorf("%s: still not available: %v", what, err)
			return false
		}
		r.turned.Add(1)
	}
}

// round takes one consumer from idle to idle, for the nth time: an event, a wake, a callback. It reports whether every
// answer was right. last is the epoch of the round before; epochs jump when another server has taken over.
func (r riding) round(w *world, sub fsm.Subscription, path string, n int, last *int64) bool {
	tail, before := fsm.Offset(fmt.Sprintf("%06d", n)), fsm.Offset(fmt.Sprintf("%06d", n-1))
	home, id := w.PartitionOf(path), fsm.ConsumerID(sub.ID, path)
	var seen fsm.Observation
	observe := func() (err error) { seen, err = w.Observe(r.t.Context(), home, path, tail, false); return err }
	if !r.out("observe", observe) {
		return false
	}
	if !seen.Watched || seen.Noted.Tail != tail || len(seen.Deliveries) != 1 || seen.Deliveries[0].Epoch <= *last ||
		seen.Deliveries[0].Streams[0].Acked != before {
		r.t.Errorf("round %d of %s, after epoch %d: observed %+v", n, path, *last, seen)
		return false
	}
	epoch := seen.Deliveries[0].Epoch
	*last = epoch
	var linked fsm.Outcome
	if !r.out("link",
		func() (err error) { linked, err = w.Link(r.t.Context(), sub, path, fsm.Start, tail); return err }) {
		return false
	}
	if len(linked.Deliveries) > 0 {
		r.t.Errorf("epoch %d of %s: linked anew: %+v", epoch, path, linked)
		return false
	}
	var reply fsm.CallbackReply
	cb := fsm.Callback{
		Consumer: fsm.ConsumerRef{ID: id, Home: path}, Primary: path,
		Generation: sub.Generation, Epoch: epoch, TokenEpoch: epoch,
		WakeID: seen.Deliveries[0].WakeID,
		Acks:   []fsm.Ack{{Path: path, Offset: tail}}, Done: true, MaxStreams: 10,
	}
	if !r.out("callback", func() (err error) { reply, err = w.Callback(r.t.Context(), cb); return err }) {
		return false
	}
	if reply.Code != "" || len(reply.Deliveries) > 0 {
		r.t.Errorf("epoch %d of %s: the callback is answered %+v", epoch, path, reply)
		return false
	}
	var c fsm.Consumer
	if !r.out("consumer", func() (err error) {
		c, err = w.Consumer(r.t.Context(), fsm.ConsumerRef{ID: id, Home: path})
		return err
	}) {
		return false
	}
	if c.Epoch != epoch || c.State != fsm.Idle || c.Links[path] != (fsm.Link{Acked: tail, Tail: tail}) {
		r.t.Errorf("epoch %d of %s: the consumer is %+v", epoch, path, c)
		return false
	}
	return true
}

// subscriptions creates and deletes one. It reports whether every answer was right.
func (r riding) subscriptions(w *world, id string) bool {
	ctx, sub := r.t.Context(), subscription(id)
	var created bool
	if !r.out("create", func() (err error) { _, created, err = w.CreateSubscription(ctx, sub); return err }) {
		return false
	}
	var under map[string]fsm.Backfill
	if !r.out("set the backfill", func() error { return w.SetBackfill(ctx, sub, fsm.Backfill{Done: 1, Total: 2}) }) ||
		!r.out("backfills", func() (err error) { under, err = w.Backfills(ctx); return err }) ||
		!r.out("refresh", func() error { return w.RefreshCatalog(ctx) }) {
		return false
	}
	if _, there := w.Catalog().Get(id); !created || !there || under[id] != (fsm.Backfill{Done: 1, Total: 2}) {
		r.t.Errorf("%s: created %v, on the list %v, backfills %v", id, created, there, under)
		return false
	}
	if !r.out("delete", func() error { return w.DeleteSubscription(ctx, id) }) ||
		!r.out("refresh", func() error { return w.RefreshCatalog(ctx) }) {
		return false
	}
	if _, there := w.Catalog().Get(id); there {
		r.t.Errorf("%s is on the list after it was deleted", id)
		return false
	}
	return true
}

// TestASlotThatIsMovedIsNeverActedOnByHalf holds that while keys move one by one every call is either answered as if
// nothing happened or says that the store is not available.
func TestASlotThatIsMovedIsNeverActedOnByHalf(t *testing.T) {
	t.Parallel()
	cluster := harness.StartRedisCluster(t, 3, 0) // its own, for its slots stay where they are moved
	w := open(t, cluster.URL, 1)
	ctx := t.Context()
	if err := w.Check(ctx); err != nil {
		t.Fatal(err)
	}
	sub, _, err := w.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	const streams, workers = 6, 3
	path := func(i int) string { return fmt.Sprint("/s", i) }
	for i := range streams {
		must[fsm.Outcome](t)(w.Link(ctx, sub, path(i), "000000", "000000"))
	}
	var rounds [streams]int
	var epochs [streams]int64
	for _, c := range []struct{ name, key string }{{"a partition", "rv:{0}:"}, {"the subscriptions", "rv:{subs}:"}} {
		t.Run(c.name, func(t *testing.T) {
			var turned, done atomic.Int64
			stop := make(chan struct{})
			var wg sync.WaitGroup
			work := func(step func(n int) bool) {
				wg.Go(func() {
					for n := 0; step(n); n++ {
						select {
						case <-stop:
							return
						default:
						}
					}
				})
			}
			// Only calls that the move concerns are counted.
			onPartition, onSubscriptions := riding{t, &turned, &done}, riding{t, new(atomic.Int64), new(atomic.Int64)}
			if c.key != "rv:{0}:" {
				onPartition, onSubscriptions = onSubscriptions, onPartition
			}
			for k := range workers {
				work(func(n int) bool {
					i := k + workers*(n%(streams/workers))
					rounds[i]++
					return onPartition.round(w, sub, path(i), rounds[i], &epochs[i])
				})
			}
			work(func(n int) bool { return onSubscriptions.subscriptions(w, fmt.Sprint("other", n)) })
			// Each step waits until calls have come and gone, so that none falls between two of them.
			busy := func(rounds int64) {
				t.Helper()
				was := turned.Load() + done.Load()
				harness.Eventually(t, harness.Wait, "calls are made", harness.True(func() bool {
					return t.Failed() || turned.Load()+done.Load() >= was+rounds
				}, "too few"))
			}
			busy(20)
			slot := cluster.Slot(c.key)
			from := cluster.Master(slot)
			to := cluster.Nodes[0]
			if to == from {
				to = cluster.Nodes[1]
			}
			cluster.BeginMigration(slot, from, to)
			keys := 0
			for busy(2); !t.Failed() && cluster.MigrateKey(slot, from, to); busy(2) {
				keys++
			}
			away := turned.Load()
			if t.Failed() {
				close(stop)
				wg.Wait()
				return
			}
			cluster.EndMigration(slot, from, to)
			was := done.Load()
			harness.Eventually(t, harness.Wait, "all goes on",
				harness.True(func() bool { return t.Failed() || done.Load() > was+40 }, "too few calls"))
			close(stop)
			wg.Wait()
			if cluster.Master(slot) != to || keys < 3 || away == 0 {
				t.Errorf("%d keys moved, %d calls were turned away meanwhile", keys, away)
			}
			t.Logf("%d keys moved, %d calls were turned away, %d answered", keys, away, done.Load())
		})
	}
}
