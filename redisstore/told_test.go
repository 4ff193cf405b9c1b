package redisstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/cache"
	"reveille/fsm/spec/memstore"
	"reveille/redisstore"
)

// eitherStore is what both stores have for subscriptions.
type eitherStore interface {
	CreateSubscription(ctx context.Context, sub fsm.Subscription) (stored fsm.Subscription, created bool, err error)
	ChangeSubscription(
		ctx context.Context, id string, change func(fsm.Subscription) (fsm.Subscription, error),
	) (fsm.Subscription, error)
	ChangeConsent(
		ctx context.Context, sub fsm.Subscription, change func(was fsm.Consent, now time.Time) (fsm.Consent, error),
	) (fsm.Subscription, error)
	RetireSubscription(ctx context.Context, sub fsm.Subscription) error
	DisableSubscription(ctx context.Context, sub fsm.Subscription) error
	ResumeSubscription(ctx context.Context, id string) (n int, o fsm.Outcome, err error)
	RotateSecret(ctx context.Context, id string, r fsm.Rotation) (fsm.Subscription, error)
	DeleteSubscription(ctx context.Context, id string) error
	Version(ctx context.Context) (int64, error)
	RefreshCatalog(ctx context.Context) error
	Catalog() *cache.Catalog
}

// bothStores has two replicas of each store.
func bothStores(t *testing.T) map[string][2]eitherStore {
	t.Helper()
	db := memstore.New(memstore.Options{})
	server := redisstore.EmptyRedis(t)
	return map[string][2]eitherStore{
		"redis":  {open(t, server.URL, 4), open(t, server.URL, 4)},
		"memory": {db.Replica("a"), db.Replica("b")},
	}
}

// TestASubscriptionIsToldFromTheFirstRepetitionOn holds of both stores that whoever reads a version of the list after
// somebody was told of a subscription that he has not created finds that in it.
func TestASubscriptionIsToldFromTheFirstRepetitionOn(t *testing.T) {
	t.Parallel()
	for name, replicas := range bothStores(t) {
		t.Run(name, func(t *testing.T) {
			ctx, creator, other := t.Context(), replicas[0], replicas[1]
			told := func() (bool, int64) {
				t.Helper()
				version, err := creator.Version(ctx)
				if err == nil {
					err = creator.RefreshCatalog(ctx)
				}
				sub, there := creator.Catalog().Get("s")
				if err != nil || !there || creator.Catalog().Version() != version {
					t.Fatal(err, there)
				}
				return sub.Told, version
			}
			sub, created, err := creator.CreateSubscription(ctx, subscription("s"))
			if err != nil || !created || sub.Told {
				t.Fatal(sub, created, err)
			}
			if told, _ := told(); told {
				t.Error("it is told by its creation")
			}
			again := subscription("s")
			again.Generation, again.Pattern = "of another", "/a"
			if _, _, err := other.CreateSubscription(ctx, again); !errors.As(err, new(*fsm.ConflictError)) {
				t.Fatal(err)
			}
			if told, _ := told(); told {
				t.Error("it is told by a refusal")
			}
			again.Pattern = subscription("s").Pattern
			sub, created, err = other.CreateSubscription(ctx, again)
			if err != nil || created || sub.Generation != subscription("s").Generation {
				t.Fatal(sub, created, err)
			}
			is, version := told()
			if !is {
				t.Error("it is not told by its repetition")
			}
			if now, _ := creator.Catalog().Get("s"); now.Version != sub.Version || now.Version >= version {
				t.Errorf("its version is %d, was %d, that of the list is %d", now.Version, sub.Version, version)
			}
			if _, _, err := other.CreateSubscription(ctx, again); err != nil {
				t.Fatal(err)
			}
			if _, now := told(); now != version {
				t.Error("another repetition changes the list")
			}
		})
	}
}

// TestAChangedSubscriptionIsMadeOfTheLatestForm holds of both stores.
func TestAChangedSubscriptionIsMadeOfTheLatestForm(t *testing.T) {
	t.Parallel()
	describe := func(as string) func(fsm.Subscription) (fsm.Subscription, error) {
		return func(s fsm.Subscription) (fsm.Subscription, error) {
			s.Description = as
			return s, nil
		}
	}
	for name, replicas := range bothStores(t) {
		t.Run(name, func(t *testing.T) {
			ctx, a, b := t.Context(), replicas[0], replicas[1]
			if _, err := a.ChangeSubscription(ctx, "s", describe("of none")); !errors.Is(err, fsm.ErrNotFound) {
				t.Fatal(err)
			}
			made, _, err := a.CreateSubscription(ctx, subscription("s"))
			if err != nil || made.Revision != 0 {
				t.Fatal(made, err)
			}
			before, err := a.Version(ctx)
			if err != nil {
				t.Fatal(err)
			}
			refusal := errors.New("no")
			if _, err := a.ChangeSubscription(ctx, "s", func(s fsm.Subscription) (fsm.Subscription, error) {
				s.Description = "refused"
				return s, refusal
			}); !errors.Is(err, refusal) {
				t.Fatal(err)
			}
			if now, err := a.Version(ctx); now != before || err != nil {
				t.Error("a change that was refused changes the list", err)
			}

			changed, err := a.ChangeSubscription(ctx, "s", describe("first"))
			want := made
			want.Description, want.Revision, want.Told = "first", 1, true
			if err != nil || !changed.Equal(want) {
				t.Fatalf("it is %+v, %v; want %+v", changed, err, want)
			}
			for replica, s := range replicas {
				if err := s.RefreshCatalog(ctx); err != nil {
					t.Fatal(err)
				}
				if got, _ := s.Catalog().Get("s"); !got.Equal(want) {
					t.Errorf("replica %d has %+v, want %+v", replica, got, want)
				}
			}
			version, err := b.Version(ctx)
			if err != nil || version <= before {
				t.Errorf("the list had the version %d and has %d, %v", before, version, err)
			}
			if again, err := b.ChangeSubscription(ctx, "s", describe("first")); !again.Equal(want) || err != nil {
				t.Errorf("the same once more: %+v, %v", again, err)
			}
			if now, _ := b.Version(ctx); now != version {
				t.Error("a change that changes nothing changes the list")
			}
		})
	}
}

// In Redis a change can come between the reading of the old form and the writing of the new one.
func TestAChangeThatAnotherHasOvertakenIsMadeAnew(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	a, b := open(t, server.URL, 4), open(t, server.URL, 4)
	ctx := t.Context()
	for name, meanwhile := range map[string]func() error{
		"it is changed": func() error {
			_, err := b.ChangeSubscription(ctx, "s", func(s fsm.Subscription) (fsm.Subscription, error) {
				s.Webhook = "https://example.com/meanwhile"
				return s, nil
			})
			return err
		},
		"it is deleted, and made anew": func() error {
			if err := b.DeleteSubscription(ctx, "s"); err != nil {
				return err
			}
			anew := subscription("s")
			anew.Generation, anew.Webhook = "anew", "https://example.com/meanwhile"
			_, _, err := b.CreateSubscription(ctx, anew)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := a.CreateSubscription(ctx, subscription("s")); err != nil {
				t.Fatal(err)
			}
			tries := 0
			got, err := a.ChangeSubscription(ctx, "s", func(s fsm.Subscription) (fsm.Subscription, error) {
				if tries++; tries == 1 {
					if err := meanwhile(); err != nil {
						t.Fatal(err)
					}
				}
				s.Description = "changed"
				return s, nil
			})
			if err != nil || tries != 2 || got.Webhook != "https://example.com/meanwhile" ||
				got.Description != "changed" {
				t.Errorf("after %d tries it is %+v, %v", tries, got, err)
			}
			if err := a.DeleteSubscription(ctx, "s"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAChangeKeepsWhatOnlyALaterVersionKnows(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 4)
	ctx := t.Context()
	const later = `{"id":"s","generation":"g","pattern":"/**","webhook":"https://example.com/","secret":"whsec_y",` +
		`"created_at":1763999999123456,"version":3612671998204928123,"mode":"push","later":{"max":3}}`
	if err := w.rdb.HSet(ctx, storedSubscriptions, "s", later).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ChangeSubscription(ctx, "s", func(s fsm.Subscription) (fsm.Subscription, error) {
		s.Description = "changed"
		return s, nil
	}); err != nil {
		t.Fatal(err)
	}
	var stored map[string]json.RawMessage
	if err := json.Unmarshal([]byte(w.rdb.HGet(ctx, storedSubscriptions, "s").Val()), &stored); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"description": `"changed"`, "later": `{"max":3}`, "mode": `"push"`, "revision": "1",
		"created_at": "1763999999123456", "version": "3612671998204928123", "secret": `"whsec_y"`,
	} {
		if string(stored[field]) != want {
			t.Errorf("%s is %s, want %s", field, stored[field], want)
		}
	}
}
