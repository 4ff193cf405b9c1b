package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// TestAPauseIsStoredAndEndsWithAResumption takes one from one replica to another. The consumers are visited when the
// subscription is not paused any more: a replica that holds back one of them later finds that.
func TestAPauseIsStoredAndEndsWithAResumption(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	one, two := open(t, server.URL, 4), open(t, server.URL, 4)
	ctx := t.Context()
	sub, _, err := one.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	w := must[fsm.Outcome](t)(one.Link(ctx, sub, "/a", fsm.Start, "1")).Deliveries[0]
	if _, err := one.ChangeSubscription(ctx, "s", func(now fsm.Subscription) (fsm.Subscription, error) {
		now.Paused = true
		return now, nil
	}); err != nil {
		t.Fatal(err)
	}
	must[fsm.Outcome](t)(one.Park(ctx, w.Ref(), fsm.BlockedPaused, time.Hour))
	since := one.now
	one.later(time.Minute)
	if _, err := one.ChangeSubscription(ctx, "s", func(now fsm.Subscription) (fsm.Subscription, error) {
		now.Description = "changed"
		return now, nil
	}); err != nil {
		t.Fatal(err)
	}
	paused := func() bool {
		t.Helper()
		if err := two.RefreshCatalog(ctx); err != nil {
			t.Fatal(err)
		}
		now, _ := two.Catalog().Get("s")
		if now.Paused && !now.PausedAt.Equal(since) || !now.Paused && !now.PausedAt.IsZero() {
			t.Errorf("paused: %t, since %s, want %s", now.Paused, now.PausedAt, since)
		}
		return now.Paused
	}
	if !paused() {
		t.Error("another replica does not see it paused")
	}
	resume := func(want int) {
		t.Helper()
		if n, _, err := one.ResumeSubscription(ctx, "s"); n != want || err != nil {
			t.Errorf("%d are resumed, not %d: %v", n, want, err)
		}
	}
	resume(1)
	if c, err := one.Consumer(ctx, w.Ref().Consumer); err != nil || c.Deadline.After(one.now) {
		t.Errorf("it waits until %s, %v", c.Deadline, err)
	}
	if paused() {
		t.Error("another replica sees it paused")
	}
	revision := func() int64 {
		now, _ := one.Catalog().Get("s")
		return now.Revision
	}
	was := revision()
	resume(0)
	if got := revision(); got != was {
		t.Errorf("a second resumption changed it: revision %d after %d", got, was)
	}
}

// TestASubscriptionIsRetiredUntilItIsResumed holds of both stores. An answer to an earlier subscription or webhook does
// not retire it. Another webhook does not resume it.
func TestASubscriptionIsRetiredUntilItIsResumed(t *testing.T) {
	t.Parallel()
	for name, replicas := range bothStores(t) {
		t.Run(name, func(t *testing.T) {
			ctx, one, two := t.Context(), replicas[0], replicas[1]
			sub, _, err := one.CreateSubscription(ctx, subscription("s"))
			if err != nil {
				t.Fatal(err)
			}
			is := func(want bool) {
				t.Helper()
				if err := two.RefreshCatalog(ctx); err != nil {
					t.Fatal(err)
				}
				if now, _ := two.Catalog().Get("s"); now.Retired != want || now.Stopped() != want || now.Paused {
					t.Errorf("it is %+v", now)
				}
			}
			retire := func(sub fsm.Subscription, want error) {
				t.Helper()
				if err := one.RetireSubscription(ctx, sub); !errors.Is(err, want) {
					t.Error(err)
				}
			}
			earlier, elsewhere := sub, sub
			earlier.Generation, elsewhere.Webhook = "earlier", "https://example.com/before"
			retire(earlier, fsm.ErrNotFound)
			retire(elsewhere, fsm.ErrNotFound)
			is(false)
			retire(sub, nil)
			retire(sub, nil)
			is(true)
			if _, _, err := two.ResumeSubscription(ctx, "s"); err != nil {
				t.Error(err)
			}
			is(false)
			retire(sub, nil)
			if _, err := two.ChangeSubscription(ctx, "s", func(s fsm.Subscription) (fsm.Subscription, error) {
				s.Webhook = "https://example.com/another"
				return s, nil
			}); err != nil {
				t.Error(err)
			}
			is(true)
		})
	}
}
