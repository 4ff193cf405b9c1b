package redisstore_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
	"reveille/redisstore"
)

// TestASecretIsRotatedByTheStoresClock holds of both stores how the previous secret is kept, and for how long.
func TestASecretIsRotatedByTheStoresClock(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	a, b := open(t, server.URL, 4), open(t, server.URL, 4)
	now := a.now
	db := memstore.New(memstore.Options{Draw: func() memstore.Draw { return memstore.Draw{Now: now} }})
	for name, tc := range map[string]struct {
		one, two eitherStore
		set      func(time.Time)
	}{
		"redis":  {a, b, func(at time.Time) { a.now, b.now = at, at }},
		"memory": {db.Replica("a"), db.Replica("b"), func(at time.Time) { now = at }},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, begin := t.Context(), now
			rotation := fsm.Rotation{Random: []byte("next"), Overlap: time.Hour}
			if _, err := tc.one.RotateSecret(ctx, "s", rotation); !errors.Is(err, fsm.ErrNotFound) {
				t.Fatal(err)
			}
			made, _, err := tc.one.CreateSubscription(ctx, subscription("s"))
			if err != nil {
				t.Fatal(err)
			}
			want := made.Rotate(rotation, begin)
			want.Revision, want.Told = 1, true
			// The client sends a script again whose reply got lost: it is the same rotation.
			for range 2 {
				got, err := tc.one.RotateSecret(ctx, "s", rotation)
				if err != nil || !got.Equal(want) || want.Previous.Secret != made.Secret ||
					!want.Previous.Until.Equal(begin.Add(time.Hour)) {
					t.Fatalf("it is %+v, %v; want %+v", got, err, want)
				}
			}
			shows := func(when string) {
				t.Helper()
				if err := tc.two.RefreshCatalog(ctx); err != nil {
					t.Fatal(err)
				}
				if got, _ := tc.two.Catalog().Get("s"); !got.Equal(want) {
					t.Errorf("%s another replica has %+v, want %+v", when, got, want)
				}
			}
			shows("rotated,")

			describe := func(as string) {
				t.Helper()
				want.Description, want.Revision = as, want.Revision+1
				if _, err := tc.two.ChangeSubscription(ctx, "s", func(s fsm.Subscription) (fsm.Subscription, error) {
					s.Description = as
					return s, nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			tc.set(begin.Add(time.Hour - time.Millisecond))
			describe("during the overlap")
			shows("changed during the overlap,")
			tc.set(begin.Add(time.Hour))
			describe("after the overlap")
			want.Previous = fsm.PreviousSecret{}
			shows("changed after the overlap,")
			tc.set(begin)
		})
	}
}

// TestNoErrorAboutASecretHoldsOne reads a record whose previous secret is of another type.
func TestNoErrorAboutASecretHoldsOne(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 4)
	record, err := json.Marshal(map[string]any{"id": "s", "secret": "whsec_x", "previous_secret": []string{"whsec_y"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.rdb.HSet(t.Context(), storedSubscriptions, "s", record).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = w.RotateSecret(t.Context(), "s", fsm.Rotation{})
	if err == nil || strings.Contains(err.Error(), "whsec") {
		t.Errorf("got %v", err)
	}
}
