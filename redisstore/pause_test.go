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

// TestASubscriptionIsDisabledOnlyAsItWasDecided holds of both stores that a failure disables the subscription that it
// was decided of, until that is resumed. A resumption and another webhook open it anew.
func TestASubscriptionIsDisabledOnlyAsItWasDecided(t *testing.T) {
	t.Parallel()
	for name, replicas := range bothStores(t) {
		t.Run(name, func(t *testing.T) {
			ctx, one, two := t.Context(), replicas[0], replicas[1]
			asked := subscription("s")
			asked.DisableAfter = time.Hour
			sub, _, err := one.CreateSubscription(ctx, asked)
			if err != nil {
				t.Fatal(err)
			}
			now := func() fsm.Subscription {
				t.Helper()
				if err := two.RefreshCatalog(ctx); err != nil {
					t.Fatal(err)
				}
				sub, _ := two.Catalog().Get("s")
				return sub
			}
			disable := func(sub fsm.Subscription, want error) {
				t.Helper()
				if err := one.DisableSubscription(ctx, sub); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			}
			resume := func() {
				t.Helper()
				if _, _, err := two.ResumeSubscription(ctx, "s"); err != nil {
					t.Error(err)
				}
			}
			for _, change := range []func(*fsm.Subscription){
				func(s *fsm.Subscription) { s.Generation = "earlier" },
				func(s *fsm.Subscription) { s.Webhook = "https://example.com/before" },
				func(s *fsm.Subscription) { s.OpenedAt = s.OpenedAt.Add(time.Hour) },
				func(s *fsm.Subscription) { s.DisableAfter = time.Minute },
				func(s *fsm.Subscription) { s.ID = "gone" },
			} {
				other := sub
				change(&other)
				disable(other, fsm.ErrNotFound)
			}
			if is := now(); is.Stopped() || !is.OpenedAt.IsZero() {
				t.Errorf("it is %+v", is)
			}
			disable(sub, nil)
			disable(sub, fsm.ErrNotFound)
			if is := now(); !is.Paused || !is.Disabled || is.PausedAt.IsZero() {
				t.Errorf("once it is disabled, it is %+v", is)
			}
			resume()
			resumed := now()
			if resumed.Stopped() || resumed.Disabled || resumed.OpenedAt.IsZero() {
				t.Errorf("once it is resumed, it is %+v", resumed)
			}
			disable(sub, fsm.ErrNotFound) // a failure of before
			for _, change := range []func(*fsm.Subscription){
				func(s *fsm.Subscription) { s.Webhook = "https://example.com/another" },
				func(s *fsm.Subscription) { s.Description = "the same otherwise" },
			} {
				was := now()
				later(replicas)
				is, err := two.ChangeSubscription(ctx, "s", func(s fsm.Subscription) (fsm.Subscription, error) {
					change(&s)
					return s, nil
				})
				if err != nil || is.OpenedAt.Equal(was.OpenedAt) != (is.Webhook == was.Webhook) {
					t.Errorf("open since %s, it is changed to %+v, %v", was.OpenedAt, is, err)
				}
			}
			opened := now().OpenedAt
			later(replicas)
			if err := one.RetireSubscription(ctx, now()); err != nil {
				t.Error(err)
			}
			disable(now(), fsm.ErrNotFound)
			resume()
			if is := now(); !is.OpenedAt.After(opened) || is.Disabled {
				t.Errorf("resumed after a 410, it is %+v", is)
			}
		})
	}
}

// later has time pass for two stores: an hour for those with a clock of their own, otherwise as little as they note.
func later(replicas [2]eitherStore) {
	for _, r := range replicas {
		if w, own := r.(*world); own {
			w.now = w.now.Add(time.Hour)
		} else {
			time.Sleep(2 * time.Millisecond)
		}
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
