package redisstore_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

// TestAConsentIsStoredBesideTheConfiguration holds of both stores.
func TestAConsentIsStoredBesideTheConfiguration(t *testing.T) {
	t.Parallel()
	for name, replicas := range bothStores(t) {
		t.Run(name, func(t *testing.T) {
			ctx, one, two := t.Context(), replicas[0], replicas[1]
			sub, _, err := one.CreateSubscription(ctx, subscription("s"))
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			stored, err := one.ChangeConsent(ctx, sub, func(c fsm.Consent, now time.Time) (fsm.Consent, error) {
				if calls++; calls == 1 && name == "redis" { // another change comes in between
					if _, err := two.ChangeSubscription(ctx, "s", describe("changed")); err != nil {
						t.Error(err)
					}
				}
				return c.Asked(sub.Webhook, "o.example", "key", now, now.Add(time.Hour)), nil
			})
			want := stored.Consent
			if err != nil || calls != map[string]int{"redis": 2, "memory": 1}[name] ||
				want.State != fsm.ConsentPending || want.Key != "key" ||
				stored.Told != (name == "redis") {
				t.Fatalf("stored after %d calls: %+v, %v", calls, stored, err)
			}
			if err := two.RefreshCatalog(ctx); err != nil {
				t.Fatal(err)
			}
			if now, _ := two.Catalog().Get("s"); !now.Equal(stored) {
				t.Errorf("another replica finds %+v, not %+v", now, stored)
			}
			no := errors.New("no")
			if _, err := two.ChangeConsent(ctx, sub, func(fsm.Consent, time.Time) (fsm.Consent, error) {
				return fsm.Consent{}, no
			}); !errors.Is(err, no) {
				t.Error(err)
			}
			again := stored
			again.Generation = "of another"
			if _, created, err := two.CreateSubscription(ctx, again); created || err != nil {
				t.Errorf("the same PUT again: %v", err)
			}
			changed, err := two.ChangeSubscription(ctx, "s", describe("again"))
			if err != nil || !changed.Consent.Equal(want) {
				t.Errorf("after a change it is %+v, %v", changed.Consent, err)
			}
			changed, err = two.ChangeSubscription(ctx, "s", func(s fsm.Subscription) (fsm.Subscription, error) {
				s.Webhook += "/2"
				return s, nil
			})
			if err != nil || changed.Consent != (fsm.Consent{}) {
				t.Errorf("for another webhook it is %+v, %v", changed.Consent, err)
			}
			other := sub
			other.Generation = "another"
			for _, gone := range []fsm.Subscription{other, {ID: "unknown"}} {
				if _, err := one.ChangeConsent(ctx, gone, func(c fsm.Consent, _ time.Time) (fsm.Consent, error) {
					t.Error("it is asked for")
					return c, nil
				}); !errors.Is(err, fsm.ErrNotFound) {
					t.Errorf("of %s %s: %v", gone.ID, gone.Generation, err)
				}
			}
		})
	}
}

func describe(as string) func(fsm.Subscription) (fsm.Subscription, error) {
	return func(s fsm.Subscription) (fsm.Subscription, error) {
		s.Description = as
		return s, nil
	}
}

// TestAKeyOpensForOneOfThoseWhoUseIt has many use a key at the same time.
func TestAKeyOpensForOneOfThoseWhoUseIt(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	ctx, one := t.Context(), open(t, server.URL, 4)
	sub, _, err := one.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	if sub, err = one.ChangeConsent(ctx, sub, func(c fsm.Consent, now time.Time) (fsm.Consent, error) {
		return c.Asked(sub.Webhook, "o.example", "key", now, now.Add(time.Hour)), nil
	}); err != nil {
		t.Fatal(err)
	}
	var opened atomic.Int64
	var users sync.WaitGroup
	for i := range 16 {
		users.Go(func() {
			_, err := one.ChangeConsent(ctx, sub, func(c fsm.Consent, now time.Time) (fsm.Consent, error) {
				if !c.Opens("key", now) {
					return c, fsm.ErrNotFound
				}
				return c.ByKey(0, fmt.Sprint("user ", i), now), nil
			})
			switch {
			case err == nil:
				opened.Add(1)
			case !errors.Is(err, fsm.ErrNotFound):
				t.Error(err)
			}
		})
	}
	if users.Wait(); opened.Load() != 1 {
		t.Errorf("it has opened %d times", opened.Load())
	}
}
