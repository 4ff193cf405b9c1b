package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
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
		if _, err := one.FailEndpoint(ctx, sub, pause); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := one.Endpoints().Get(sub.Generation); !got.Until.Equal(until) {
			t.Errorf("who was told has %s left alone until %v", sub.ID, got.Until)
		}
		wants("after a failure", two, sub, until)
	}

	// What began before is taken: the pause goes on.
	if _, err := two.RecoverEndpoint(ctx, subs[0]); err != nil {
		t.Fatal(err)
	}
	wants("during the pause", one, subs[0], until)
	for _, w := range []*world{one, two} {
		w.later(time.Minute)
	}
	if _, err := two.RecoverEndpoint(ctx, subs[0]); err != nil {
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
	if _, err := two.FailEndpoint(ctx, subs[1], pause); err != nil {
		t.Fatal(err)
	}
	anew := subs[2]
	anew.Generation = "g-anew"
	if _, err := two.FailEndpoint(ctx, anew, pause); err != nil {
		t.Fatal(err)
	}
	wants("after a deletion and a failure", two, subs[1], time.Time{})
	if n := must[int64](t)(one.rdb.HLen(ctx, "rv:{subs}:endpoints").Result()); n != 1 {
		t.Errorf("%d endpoints are kept, want the one in trouble", n)
	}
}

// TestAPauseHoldsForAnOriginOnAllReplicas has one subscription be asked to wait, and other replicas hear of it for
// another subscription to the same scheme, host and port. It is never shortened. Only an operator ends it: it holds
// though the subscription that was asked is gone.
func TestAPauseHoldsForAnOriginOnAllReplicas(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := redisstore.EmptyRedis(t).URL
	one, two := open(t, url, 1), open(t, url, 1)
	create := func(id, webhook string) fsm.Subscription {
		sub := subscription(id)
		sub.Webhook = webhook
		sub, _, err := one.CreateSubscription(ctx, sub)
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	asked := create("asked", "https://EXAMPLE.com./asked")
	same, other := create("same", "https://example.com:443/hook"), create("other", "https://example.com:8443/hook")
	wants := func(when string, wait time.Duration, replicas ...*world) {
		t.Helper()
		for i, w := range append(replicas, open(t, url, 1)) {
			w.now = one.now
			if err := w.ReadEndpoints(ctx); err != nil {
				t.Fatal(err)
			}
			rest, _ := w.Endpoints().Paused(same)
			if rest > wait || rest < wait-time.Second {
				t.Errorf("%s, replica %d pauses for %s, want %s", when, i, rest, wait)
			}
			if rest, _ := w.Endpoints().Paused(other); rest != 0 {
				t.Errorf("%s, replica %d pauses for another endpoint, too", when, i)
			}
			p, err := w.ProbeEndpoint(ctx, same, time.Second)
			if err != nil || p.Allowed != (wait == 0) || p.Wait != wait {
				t.Errorf("%s, a delivery is %+v, %v, want a wait of %s", when, p, err, wait)
			}
		}
	}
	fails := func(sub fsm.Subscription, f fsm.EndpointFailure) {
		t.Helper()
		must[bool](t)(one.FailEndpoint(ctx, sub, f))
	}
	later := func(d time.Duration) {
		one.later(d)
		two.later(d)
	}
	wants("at first", 0, one, two)
	fails(asked, fsm.EndpointFailure{RetryAfter: time.Minute, Refused: true})
	wants("after a refusal", 0, one, two)
	fails(asked, fsm.EndpointFailure{RetryAfter: time.Minute, Shown: true})
	wants("after a failure", time.Minute, one, two)
	fails(same, fsm.EndpointFailure{RetryAfter: time.Second})
	wants("after one that asks for less", time.Minute, one, two)
	must[bool](t)(two.RecoverEndpoint(ctx, same))
	wants("after a 2xx", time.Minute, one, two)
	if err := one.DeleteSubscription(ctx, asked.ID); err != nil {
		t.Fatal(err)
	}
	wants("after a deletion", time.Minute, one, two)
	later(30 * time.Second)
	fails(asked, fsm.EndpointFailure{RetryAfter: 100 * time.Hour})
	wants("after a failure of what was deleted", fsm.MaxRetryAfter, one, two)
	if p, err := one.ProbeEndpoint(ctx, asked, time.Second); err != nil || p.Wait != fsm.MaxRetryAfter {
		t.Errorf("a late delivery of what was deleted is %+v, %v, want it to wait as all others", p, err)
	}
	later(fsm.MaxRetryAfter)
	wants("when it is over, for a new replica", 0) // the others have clocks of their own
	fails(other, fsm.EndpointFailure{RetryAfter: time.Millisecond})
	if kept := must[[]string](t)(one.rdb.ZRange(ctx, "rv:{subs}:pauses", 0, -1).Result()); len(kept) != 1 ||
		kept[0] != "https://example.com:8443" {
		t.Errorf("%q are kept, want what is not over", kept)
	}
	later(time.Second)
	fails(same, fsm.EndpointFailure{RetryAfter: time.Minute})
	wants("after another failure", time.Minute, one, two)
	must[int](t)(two.RetrySubscription(ctx, same.ID))
	wants("after an operator's retry", 0, two, one)
	fails(asked, fsm.EndpointFailure{RetryAfter: time.Minute})
	must[int](t)(two.RetrySubscription(ctx, same.ID))
	wants("after a retry of what has no trouble itself", 0, two, one)
	if n := must[int64](t)(one.rdb.Exists(ctx, "rv:{subs}:pauses").Result()); n != 0 {
		t.Error("something is kept of it")
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
		if _, err := one.FailEndpoint(ctx, sub, fsm.EndpointFailure{
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

// TestOneReplicaHasTheProbe has replicas ask at the same moment, and one of them die with it.
func TestOneReplicaHasTheProbe(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const patience = 45 * time.Second
	url := redisstore.EmptyRedis(t).URL
	one, two := open(t, url, 1), open(t, url, 1)
	sub, _, err := one.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range fsm.DownAfter {
		down := must[bool](t)([]*world{one, two}[i%2].FailEndpoint(ctx, sub, fsm.EndpointFailure{}))
		if down != (i == fsm.DownAfter-1) {
			t.Errorf("failure %d brings it down: %t", i+1, down)
		}
	}
	later := func(d time.Duration) {
		one.later(d)
		two.later(d)
	}
	ask := func(w *world) fsm.Probe { return must[fsm.Probe](t)(w.ProbeEndpoint(ctx, sub, patience)) }
	if p := ask(two); p.Allowed || p.Wait != fsm.ProbePause {
		t.Errorf("at once: %+v", p)
	}
	later(fsm.ProbePause)
	if p := ask(one); !p.Allowed || !p.Slot.Equal(one.now.Add(patience)) {
		t.Errorf("after the pause: %+v", p)
	}
	if p := ask(two); p.Allowed || p.Wait <= 0 {
		t.Errorf("beside a probe: %+v", p)
	}
	later(patience)
	slot := ask(two).Slot
	if slot.IsZero() {
		t.Error("a probe of which nobody tells goes on for ever")
	}
	if err := two.ReturnProbe(ctx, sub, slot, false); err != nil {
		t.Fatal(err)
	}
	if p := ask(one); !p.Allowed {
		t.Errorf("after one that was not sent: %+v", p)
	}
	if up := must[bool](t)(two.RecoverEndpoint(ctx, sub)); !up {
		t.Error("a 2xx does not bring it up")
	}
	if up := must[bool](t)(one.RecoverEndpoint(ctx, sub)); up {
		t.Error("another 2xx brings it up again")
	}
	if p := ask(one); !p.Allowed || !p.Slot.IsZero() {
		t.Errorf("of one that is up: %+v", p)
	}
}

// TestReleaseHeldReachesAllThatWait is about a subscription with more consumers than one call visits.
func TestReleaseHeldReachesAllThatWait(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const consumers, partitions = 300, 2
	w := open(t, redisstore.EmptyRedis(t).URL, partitions)
	var subs []fsm.Subscription
	for _, id := range []string{"s", "other"} {
		sub, _, err := w.CreateSubscription(ctx, subscription(id))
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
		for i := range consumers {
			o, err := memstore.Link(ctx, w, sub, fmt.Sprintf("/%s/%d", id, i), fsm.Start, "0001")
			if err != nil || len(o.Deliveries) != 1 {
				t.Fatal(o, err)
			}
			if _, err := w.Park(ctx, o.Deliveries[0].Ref(), fsm.BlockedSlot, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.ReleaseHeld(ctx, subs[0], fsm.BlockedDown); err != nil {
		t.Fatal(err)
	}
	due := 0
	for p := range partitions {
		o, _, err := w.Due(ctx, p, 10*consumers)
		if err != nil {
			t.Fatal(err)
		}
		for _, wake := range o.Deliveries {
			if wake.Subscription != "s" || wake.Attempt != 1 {
				t.Errorf("%s is due, attempt %d", wake.Consumer, wake.Attempt)
			}
			due++
		}
	}
	if due != consumers {
		t.Errorf("%d are due, want %d", due, consumers)
	}
}

// TestTheLongestWaitingIsFoundAmongOthers holds which delivery carries a probe: over all partitions, among many of
// another subscription, by when it began to wait, and one that has not failed before those that have.
func TestTheLongestWaitingIsFoundAmongOthers(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 4)
	ctx, sub, other := t.Context(), unordered("s"), unordered("another")
	none := func(after time.Time) {
		t.Helper()
		if r, _, ok, err := w.LongestWaiting(ctx, sub, after); ok || err != nil {
			t.Errorf("%+v waits, %v", r, err)
		}
	}
	none(time.Time{})
	fail := func(sub fsm.Subscription, path string) {
		t.Helper()
		wake := must[fsm.Outcome](t)(w.Link(ctx, sub, path, fsm.Start, "9")).Deliveries[0]
		must[fsm.Outcome](t)(w.Fail(ctx, wake.Ref(), fsm.Failure{Profile: sub.Profile(), Reason: "status 503"}))
	}
	for n := range 900 {
		fail(other, fmt.Sprint("/other/", n))
	}
	none(time.Time{})
	var since []time.Time
	for n := range 8 {
		w.later(time.Second)
		since = append(since, w.now)
		fail(sub, fmt.Sprint("/s/", n))
	}
	for n := range since {
		after := time.Time{}
		if n > 0 {
			after = since[n-1]
		}
		r, at, ok, err := w.LongestWaiting(ctx, sub, after)
		want := fsm.RefOf("s", fmt.Sprint("/s/", n))
		if !ok || err != nil || r.Consumer != want || !at.Equal(since[n]) {
			t.Fatalf("after %s: %+v since %s, %v, want %+v", after, r, at, err, want)
		}
	}
	none(since[7])
	wake := must[fsm.Outcome](t)(w.Link(ctx, sub, "/s/held", fsm.Start, "9")).Deliveries[0]
	must[fsm.Outcome](t)(w.Park(ctx, wake.Ref(), fsm.BlockedSlot, time.Hour))
	r, _, ok, err := w.LongestWaiting(ctx, sub, time.Time{})
	if !ok || err != nil || r.Consumer.ID != wake.Consumer {
		t.Errorf("%+v carries the probe, %v, want the one that has not failed", r, err)
	}
	if waited := must[bool](t)(w.ProbeDelivery(ctx, r)); !waited {
		t.Error("it did not wait")
	}
}
