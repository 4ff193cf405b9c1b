package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// TestReplicasHearOfEndpointsInTrouble has one replica note what endpoints say, and another read it.
func TestReplicasHearOfEndpointsInTrouble(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := redisstore.EmptyRedis(t).URL
	one, two := open(t, url, 1), open(t, url, 1)
	pause := fsm.EndpointFailure{RetryAfter: time.Minute}
	until := one.now.Add(time.Minute)
	wants := func(when string, w *world, sub fsm.Subscription, want time.Time) {
		t.Helper()
		if err := w.ReadEndpoints(ctx); err != nil {
			t.Fatal(err)
		}
		if got, _, trouble := w.Endpoints().Get(sub.Generation); !got.Until.Equal(want) || trouble == want.IsZero() {
			t.Errorf("%s, %s is left alone until %v, want %v", when, sub.ID, got.Until, want)
		}
	}
	var subs []fsm.Subscription
	for i := range 3 {
		sub, _, err := one.CreateSubscription(ctx, subscription(fmt.Sprint("s", i)))
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	wants("at first", two, subs[0], time.Time{})
	for _, sub := range subs {
		if err := one.FailEndpoint(ctx, sub, pause); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := one.Endpoints().Get(sub.Generation); !got.Until.Equal(until) {
			t.Errorf("who was told has %s left alone until %v", sub.ID, got.Until)
		}
		wants("after a failure", two, sub, until)
	}

	// What began before is taken: the pause goes on.
	if err := two.RecoverEndpoint(ctx, subs[0]); err != nil {
		t.Fatal(err)
	}
	wants("during the pause", one, subs[0], until)
	for _, w := range []*world{one, two} {
		w.later(time.Minute)
	}
	if err := two.RecoverEndpoint(ctx, subs[0]); err != nil {
		t.Fatal(err)
	}
	wants("after the pause", one, subs[0], time.Time{})
	wants("beside it", one, subs[1], until)
	fresh := open(t, url, 1)
	wants("to a new replica", fresh, subs[0], time.Time{})
	wants("to a new replica", fresh, subs[1], until)

	// What comes late is of a subscription that is gone.
	if err := one.DeleteSubscription(ctx, subs[1].ID); err != nil {
		t.Fatal(err)
	}
	wants("after a deletion", two, subs[1], time.Time{})
	if err := two.FailEndpoint(ctx, subs[1], pause); err != nil {
		t.Fatal(err)
	}
	anew := subs[2]
	anew.Generation = "g-anew"
	if err := two.FailEndpoint(ctx, anew, pause); err != nil {
		t.Fatal(err)
	}
	wants("after a deletion and a failure", two, subs[1], time.Time{})
	if n := must[int64](t)(one.rdb.HLen(ctx, "rv:{subs}:endpoints").Result()); n != 1 {
		t.Errorf("%d endpoints are kept, want the one in trouble", n)
	}
}

// TestAReplicaThatMissedManyEndpointsReadsAllOfThem is about more changes than are kept.
func TestAReplicaThatMissedManyEndpointsReadsAllOfThem(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := redisstore.EmptyRedis(t).URL
	one, two := open(t, url, 1), open(t, url, 1)
	sub := must[fsm.Subscription](t)(func() (fsm.Subscription, error) {
		sub, _, err := one.CreateSubscription(ctx, subscription("s"))
		return sub, err
	}())
	if err := two.ReadEndpoints(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 1100 {
		if err := one.FailEndpoint(ctx, sub, fsm.EndpointFailure{
			RetryAfter: time.Second + time.Duration(i)*time.Millisecond,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if n := must[int64](t)(one.rdb.ZCard(ctx, "rv:{subs}:endpoints_changes").Result()); n > 1000 {
		t.Errorf("%d changes are kept", n)
	}
	if err := two.ReadEndpoints(ctx); err != nil {
		t.Fatal(err)
	}
	want := one.now.Add(2099 * time.Millisecond)
	if got, _, _ := two.Endpoints().Get(sub.Generation); !got.Until.Equal(want) {
		t.Errorf("it is left alone until %v, want %v", got.Until, want)
	}
}
