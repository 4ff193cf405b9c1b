package redisstore_test

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// TestAnIdempotencyKeyIsOfOneEvent holds how long a key is kept: as long as its event, and not for good if there is
// none.
func TestAnIdempotencyKeyIsOfOneEvent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := openWith(t, redisstore.EmptyRedis(t).URL, nil, redisstore.Options{Partitions: 4, Outbox: true})
	w.Ownership().Replace(fsm.AllPartitions(4))
	reserves := func(when, id string, want fsm.OutboxKey) {
		t.Helper()
		got, err := w.ReserveKey(ctx, "key", fsm.OutboxKey{ID: id, Asked: map[string]string{"payload": id}})
		if err != nil || got.ID != want.ID || got.New != want.New || got.Asked["payload"] != want.ID {
			t.Errorf("%s: %+v, %v, want %+v", when, got, err, want)
		}
	}
	kept := func(when string, keys int, least, most time.Duration) {
		t.Helper()
		found := must[[]string](t)(w.rdb.Keys(ctx, "rv:*key:key").Result())
		if len(found) != keys {
			t.Errorf("%s %q are kept", when, found)
		}
		for _, key := range found {
			if ttl, err := w.rdb.PTTL(ctx, key).Result(); err != nil || ttl < least || ttl > most {
				t.Errorf("%s it is kept for %s, %v", when, ttl, err)
			}
		}
	}
	if _, err := w.EventOfKey(ctx, "key"); !errors.Is(err, fsm.ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	id := fsm.NewOutboxID(w.PartitionOf("/s"), "1")
	reserves("the first", id, fsm.OutboxKey{ID: id, New: true})
	reserves("another one", "two", fsm.OutboxKey{ID: id})
	if of, err := w.EventOfKey(ctx, "key"); err != nil || of != id {
		t.Errorf("it is of %q, %v", of, err)
	}
	kept("as long as nothing was handed over,", 1, time.Hour, fsm.OutboxReserved)
	if err := w.KeepKey(ctx, "key", "two"); !errors.Is(err, fsm.ErrUnavailable) {
		t.Errorf("it is kept for another event: %v", err)
	}
	if err := w.KeepKey(ctx, "key", id); err != nil {
		t.Error(err)
	}
	kept("then", 1, -1, -1)
	sub := unordered("s")
	if _, _, err := w.CreateSubscription(ctx, sub); err != nil {
		t.Fatal(err)
	}
	e := fsm.OutboxEvent{ID: id, Key: "key", CreatedAt: w.now.UnixMilli()}
	for _, want := range []bool{true, false} {
		if made, err := w.AcceptEvent(ctx, e, "/s", fsm.ConsumerID(sub.ID, "/s")); err != nil || made != want {
			t.Fatalf("it is made: %t, %v", made, err)
		}
	}
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/s", fsm.Start, "1")).Deliveries[0]
	for range 2 { // the reply of the first may be lost
		if takes, err := w.TakeEvent(ctx, wake.Ref(), e, false); err != nil || !takes {
			t.Errorf("it is taken up: %t, %v", takes, err)
		}
	}
	must[fsm.Outcome](t)(w.Deliver(ctx, wake.Ref(), fsm.Delivered{
		Path: "/s", To: "1", Within: "1", Profile: sub.Profile(), Event: id, Status: 200,
	}))
	expire := func() {
		t.Helper()
		if err := w.ExpireEvents(ctx); err != nil {
			t.Error(err)
		}
	}
	w.later(fsm.OutboxRetention - time.Millisecond)
	expire()
	kept("before it expires,", 1, -1, -1)
	if e, err := w.OutboxEvent(ctx, id); err != nil || e.OutboxState.Status != fsm.OutboxDelivered {
		t.Errorf("it is %+v, %v", e, err)
	}
	w.later(time.Millisecond)
	if _, err := w.OutboxEvent(ctx, id); !errors.Is(err, fsm.ErrNotFound) {
		t.Errorf("once it has expired: %v", err)
	}
	expire()
	kept("then", 0, 0, 0)
	p := w.prefixOf("/s")
	if n := must[int64](t)(w.rdb.Exists(ctx, p+"event:"+id, p+"expire", p+"events:delivered").Result()); n != 0 {
		t.Errorf("%d keys of the event are left", n)
	}
}

// TestWhoTakesAnEventUpKeepsItsKey holds it for a hand-over that was cut short: its key was reserved, and Redis does
// not know that the event lies in its stream.
func TestWhoTakesAnEventUpKeepsItsKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := openWith(t, redisstore.EmptyRedis(t).URL, nil, redisstore.Options{Partitions: 4, Outbox: true})
	w.Ownership().Replace(fsm.AllPartitions(4))
	id := fsm.NewOutboxID(w.PartitionOf("/s"), "1")
	must[fsm.OutboxKey](t)(w.ReserveKey(ctx, "key", fsm.OutboxKey{ID: id}))
	sub := unordered("s")
	if _, _, err := w.CreateSubscription(ctx, sub); err != nil {
		t.Fatal(err)
	}
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/s", fsm.Start, "1")).Deliveries[0]
	e := fsm.OutboxEvent{ID: id, Key: "key", CreatedAt: w.now.UnixMilli()}
	if takes, err := w.TakeEvent(ctx, wake.Ref(), e, false); err != nil || !takes {
		t.Fatalf("it is taken up: %t, %v", takes, err)
	}
	keys := must[[]string](t)(w.rdb.Keys(ctx, "rv:*key:key").Result())
	if len(keys) != 1 {
		t.Errorf("the keys are %q", keys)
	}
	for _, key := range keys {
		if ttl, err := w.rdb.PTTL(ctx, key).Result(); err != nil || ttl != -1 {
			t.Errorf("%s goes in %s, %v", key, ttl, err)
		}
	}
	if of, err := w.EventOfKey(ctx, "key"); err != nil || of != id {
		t.Errorf("the key is of %q, %v", of, err)
	}
}

// TestAConfigurationIsChangedInOneStep has several replicas change it at the same time. All changes are kept, and every
// replica follows.
func TestAConfigurationIsChangedInOneStep(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), redisstore.EmptyRedis(t).URL
	one := openWith(t, url, nil, redisstore.Options{Partitions: 4, Outbox: true})
	two := openWith(t, url, nil, redisstore.Options{Partitions: 4, Outbox: true})
	sub := unordered("s")
	sub.Format, sub.Retry = fsm.FormatOutbox, fsm.DefaultOutboxConfig.Backoffs()
	if _, _, err := one.CreateSubscription(ctx, sub); err != nil {
		t.Fatal(err)
	}
	var changes sync.WaitGroup
	for i := range 20 {
		changes.Go(func() {
			_, _, err := []*world{one, two}[i%2].ChangeOutboxConfig(ctx,
				func(c fsm.OutboxConfig) (fsm.OutboxConfig, error) {
					c.MaxAttempts++
					c.InitialBackoffMs += 10
					return c.WithSecret(fmt.Sprint(i), "whsec_x", time.Now()), nil
				})
			if err != nil {
				t.Error(err)
			}
		})
	}
	changes.Wait()
	refused := errors.New("refused")
	if was, _, err := one.ChangeOutboxConfig(ctx, func(c fsm.OutboxConfig) (fsm.OutboxConfig, error) {
		c.MaxAttempts = 1
		return c, refused
	}); !errors.Is(err, refused) || was.MaxAttempts != 25 {
		t.Errorf("a refused one: %+v, %v", was, err)
	}
	for _, w := range []*world{one, two} {
		if err := w.RefreshCatalog(ctx); err != nil {
			t.Error(err)
		}
		c, kept := w.Catalog().OutboxConfig(), must[fsm.OutboxConfig](t)(w.OutboxConfig(ctx))
		for _, c := range []fsm.OutboxConfig{c, kept} {
			if c.MaxAttempts != 25 || c.InitialBackoffMs != 1200 || len(c.Secrets) != 20 || c.MaxBackoffMs != 300_000 {
				t.Errorf("it is %+v", c)
			}
		}
		sub, _ := w.Catalog().Get("s")
		if all := w.Catalog().All(); sub.Retry[0] != 1200*time.Millisecond || all[0].Retry[0] != sub.Retry[0] {
			t.Errorf("the target's retries are %s", sub.Retry)
		}
	}
}

// TestTheCountsOfAnHourAreBounded holds that providers for which there is no room count as others, and how long the
// counts are kept.
func TestTheCountsOfAnHourAreBounded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := openWith(t, redisstore.EmptyRedis(t).URL, nil, redisstore.Options{Partitions: 4, Outbox: true})
	accept := func(n int, provider string) {
		t.Helper()
		e := fsm.OutboxEvent{
			ID: fsm.NewOutboxID(w.PartitionOf("/s"), fmt.Sprint(n)), Provider: provider, CreatedAt: w.now.UnixMilli(),
		}
		if made, err := w.AcceptEvent(ctx, e, "/s", "none"); err != nil || !made {
			t.Fatalf("it is made: %t, %v", made, err)
		}
	}
	accept(1, "github")
	hour := fsm.OutboxHourOf(w.now)
	key := fmt.Sprintf("%shour:%d", w.prefixOf("/s"), hour)
	if ttl, err := w.rdb.PTTL(ctx, key).Result(); err != nil || ttl <= fsm.MaxOutboxHours*time.Hour {
		t.Errorf("they are kept for %s, %v", ttl, err)
	}
	full := make([]any, 0, 2*fsm.MaxOutboxCounts)
	for i := range fsm.MaxOutboxCounts - 1 {
		full = append(full, fmt.Sprintf("handed_over p%d", i), 1)
	}
	if err := w.rdb.HSet(ctx, key, full...).Err(); err != nil {
		t.Fatal(err)
	}
	for n, provider := range []string{"github", "new", "newer"} {
		accept(n+2, provider)
	}
	hours := must[map[fsm.OutboxHour]fsm.OutboxTally](t)(w.OutboxHours(ctx, w.PartitionOf("/s"), hour, hour))
	for provider, want := range map[string]int64{"github": 2, "(other)": 2, "new": 0} {
		if got := hours[fsm.OutboxHour{Hour: hour, Provider: provider}].HandedOver; got != want {
			t.Errorf("%d of %s, want %d", got, provider, want)
		}
	}
}

func (w *world) prefixOf(path string) string { return fmt.Sprintf("rv:{%d}:", w.PartitionOf(path)) }

// TestWhatHasExpiredIsNotCounted holds it of an event that was delivered, and that is being delivered again.
func TestWhatHasExpiredIsNotCounted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := openWith(t, redisstore.EmptyRedis(t).URL, nil, redisstore.Options{Partitions: 4, Outbox: true})
	w.Ownership().Replace(fsm.AllPartitions(4))
	p := w.PartitionOf("/s")
	e := fsm.OutboxEvent{
		ID: fsm.NewOutboxID(p, "1"), Key: "key", CreatedAt: w.now.UnixMilli(), RetentionMs: time.Minute.Milliseconds(),
	}
	must[fsm.OutboxKey](t)(w.ReserveKey(ctx, "key", fsm.OutboxKey{ID: e.ID}))
	sub, _, err := w.CreateSubscription(ctx, unordered("s"))
	if err != nil {
		t.Fatal(err)
	}
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/s", fsm.Start, "1")).Deliveries[0]
	if takes, err := w.TakeEvent(ctx, wake.Ref(), e, false); err != nil || !takes {
		t.Fatalf("it is taken up: %t, %v", takes, err)
	}
	must[fsm.Outcome](t)(w.Deliver(ctx, wake.Ref(), fsm.Delivered{
		Path: "/s", To: "1", Within: "1", Tail: "1", Profile: sub.Profile(), Event: e.ID, Status: 204,
	}))
	again := must[fsm.Observation](t)(w.Observe(ctx, p, "/s", "2", false)).Outcome.Deliveries[0]
	if takes, err := w.TakeEvent(ctx, again.Ref(), e, true); err != nil || !takes {
		t.Fatalf("it is taken up again: %t, %v", takes, err)
	}
	count := func() map[fsm.OutboxStatus]int64 {
		counted := must[fsm.OutboxCount](t)(w.CountEvents(ctx, p)).Statuses
		maps.DeleteFunc(counted, func(_ fsm.OutboxStatus, n int64) bool { return n == 0 })
		return counted
	}
	if err := w.DeleteSubscription(ctx, sub.ID); err != nil {
		t.Fatal(err)
	}
	if got := count(); !maps.Equal(got, map[fsm.OutboxStatus]int64{fsm.OutboxDelivered: 1}) {
		t.Errorf("counted are %v", got)
	}
	w.later(2 * time.Minute)
	if got := count(); len(got) > 0 {
		t.Errorf("once it has expired, counted are %v", got)
	}
}
