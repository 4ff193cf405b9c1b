package redisstore_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
	"reveille/redisstore"
)

const storedSubscriptions = "rv:{subs}:all"

func TestASubscriptionIsStoredWithHowItIsDelivered(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 4)
	if _, _, err := w.CreateSubscription(t.Context(), subscription("s")); err != nil {
		t.Fatal(err)
	}
	var stored map[string]any
	if err := json.Unmarshal([]byte(w.rdb.HGet(t.Context(), storedSubscriptions, "s").Val()), &stored); err != nil {
		t.Fatal(err)
	}
	if version, _ := stored["version"].(float64); version <= 0 {
		t.Errorf("its version is %v", stored["version"])
	}
	delete(stored, "version")
	want := map[string]any{
		"id": "s", "generation": "g-s", "pattern": "/**", "webhook": "https://example.com/hook", "secret": "whsec_x",
		"previous_secret": "", "previous_secret_until": 0.0,
		"description": "", "revision": 0.0, "start": "", "mode": "wake", "format": "wake", "signature": "hmac",
		"batch": 0.0, "ordering": "", "timeout": 0.0, "retry": nil, "headers": nil, "metadata": nil,
		"events": nil, "type_path": "", "filter": nil,
		"authorization": "", "authorization_query": "", "created_at": float64(w.now.UnixMicro()),
		"paused": false, "paused_at": 0.0, "disabled": false, "retired": false, "opened_at": 0.0, "disable_after": 0.0,
		"rate": 0.0, "consent": nil,
	}
	if !maps.Equal(stored, want) {
		t.Errorf("stored is %v, want %v", stored, want)
	}
}

// TestEveryRecordSaysHowDeliveriesAreSigned holds that no record goes by a default that another version may not have.
func TestEveryRecordSaysHowDeliveriesAreSigned(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	w, other := open(t, server.URL, 4), open(t, server.URL, 4)
	for _, mode := range fsm.Modes {
		for _, signature := range append([]fsm.Signature{""}, fsm.Signatures...) {
			sub := subscription(string(mode) + "-" + string(signature))
			sub.Mode, sub.Signature = mode, signature
			want := sub.WithDefaults().Signature
			if _, _, err := w.CreateSubscription(t.Context(), sub); err != nil {
				t.Fatal(err)
			}
			for _, when := range []string{"created", "changed"} {
				var stored map[string]any
				text := w.rdb.HGet(t.Context(), storedSubscriptions, sub.ID).Val()
				if err := json.Unmarshal([]byte(text), &stored); err != nil || stored["signature"] != string(want) {
					t.Errorf("%s, %s: the record says %v, %v; want %s", sub.ID, when, stored["signature"], err, want)
				}
				if err := other.RefreshCatalog(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got, _ := other.Catalog().Get(sub.ID); got.Signature != want {
					t.Errorf("%s, %s: another replica signs by %s, want %s", sub.ID, when, got.Signature, want)
				}
				_, err := w.ChangeSubscription(t.Context(), sub.ID, func(s fsm.Subscription) (fsm.Subscription, error) {
					s.Description += "."
					return s, nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestTheSettingsOfASubscriptionAreStored takes them from one replica to another: when it is created, and when a change
// takes off what it can.
func TestTheSettingsOfASubscriptionAreStored(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	one, two := open(t, server.URL, 4), open(t, server.URL, 4)
	sub := subscription("s")
	sub.Mode, sub.Batch, sub.Timeout, sub.Ordering = fsm.ModePush, 7, 5*time.Second, fsm.OrderingNone
	sub.Retry = []time.Duration{1500 * time.Millisecond, time.Hour, 168 * time.Hour}
	sub.Headers = map[string]string{"Authorization": "Bearer x", "X-Quote": `"\é`}
	sub.Authorization = fsm.Authorization{Query: "access_token", Secret: "hush"}
	sub.Metadata = map[string]string{"team": "a", "": "no name"}
	sub.Filter = fsm.Filter{
		Events: []string{"job.*", "a<b"}, TypePath: `meta.event\.type`,
		Values: map[string][]fsm.Value{"data.queue": {`"a<b"`, `"é\u2028"`, "1.50", "true"}, `a\.b`: {"-1e3"}},
	}
	sub.Start, sub.Owner = fsm.IncarnateOffset("IY03", "000000000013", "13::IY03"), "acme"
	bare := subscription("s")
	bare.Mode, bare.Start = fsm.ModePush, sub.Start
	for _, c := range []struct {
		name  string
		store func() (fsm.Subscription, error)
		want  fsm.Subscription
	}{
		{"created", func() (fsm.Subscription, error) {
			stored, _, err := one.CreateSubscription(t.Context(), sub)
			return stored, err
		}, sub},
		{"changed", func() (fsm.Subscription, error) {
			return one.ChangeSubscription(t.Context(), "s", func(s fsm.Subscription) (fsm.Subscription, error) {
				s.Batch, s.Ordering, s.Timeout, s.Retry, s.Headers, s.Metadata = 0, "", 0, nil, nil, nil
				s.Authorization, s.Filter = fsm.Authorization{}, fsm.Filter{}
				return s.WithDefaults(), nil
			})
		}, bare},
	} {
		stored, err := c.store()
		if err != nil || !stored.SameConfig(c.want.WithDefaults()) || stored.Owner != sub.Owner {
			t.Fatalf("%s: it is %+v, %v; want %+v", c.name, stored, err, c.want.WithDefaults())
		}
		if err := two.RefreshCatalog(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, _ := two.Catalog().Get("s"); !got.Equal(stored) {
			t.Errorf("%s: another replica has %+v, want %+v", c.name, got, stored)
		}
	}
}

// TestStoredSubscriptionsOfLaterVersions reads what later versions have stored, and what is damaged, each beside one of
// this version.
func TestStoredSubscriptionsOfLaterVersions(t *testing.T) {
	t.Parallel()
	const base = `"id":"other","generation":"g","pattern":"/**","webhook":"https://example.com/",` +
		`"secret":"whsec_y","created_at":1000,"version":2048`
	later := fsm.Subscription{
		ID: "other", Generation: "g", Pattern: "/**", Webhook: "https://example.com/", Secret: "whsec_y",
		CreatedAt: time.UnixMicro(1000), Version: 2048, Mode: "push", Format: "cloudevents", Signature: "standard",
		Batch: 1, Ordering: fsm.OrderingStream, Timeout: fsm.PushTimeout, Retry: fsm.PushRetry, // it lacks them
	}
	server := redisstore.EmptyRedis(t)
	for _, c := range []struct {
		name, stored string
		want         *fsm.Subscription // nil: it is left out
		says         string
	}{
		{
			"a later version's keeps what only that one knows",
			`{` + base + `,"mode":"push","format":"cloudevents","signature":"standard","later":{"max":3}}`, &later, "",
		},
		{"one with a field of another type is left out", `{` + base + `,"mode":7}`, nil, `"other"`},
		{"as is one with headers of another type", `{` + base + `,"headers":{"A":["whsec_y"]}}`, nil, `"other"`},
		{"one that is no JSON is left out", `whsec_y`, nil, "cannot be read"},
	} {
		for _, whole := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, whole list %t", c.name, whole), func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				w := openWith(t, server.URL, nil, redisstore.Options{Partitions: 4, Logger: zap.New(core)})
				ctx := t.Context()
				if err := w.rdb.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				// Both are there before this replica reads the list, or it reads one more that has changed since.
				if !whole {
					if _, _, err := w.CreateSubscription(ctx, subscription("before")); err != nil {
						t.Fatal(err)
					}
				}
				maker := open(t, server.URL, 4)
				for _, id := range []string{"other", "ours"} {
					if _, _, err := maker.CreateSubscription(ctx, subscription(id)); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.rdb.HSet(ctx, storedSubscriptions, "other", c.stored).Err(); err != nil {
					t.Fatal(err)
				}
				if err := w.RefreshCatalog(ctx); err != nil {
					t.Fatal(err)
				}
				var ids []string
				for _, sub := range w.Catalog().All() {
					ids = append(ids, sub.ID)
				}
				got, there := w.Catalog().Get("other")
				if !slices.Contains(ids, "ours") || there != (c.want != nil) || there && !got.Equal(*c.want) {
					t.Errorf("the catalog holds %v, and %+v; want %+v", ids, got, c.want)
				}
				lines := logs.All()
				if c.want != nil && len(lines) == 0 {
					return
				}
				if len(lines) != 1 || c.want != nil {
					t.Fatalf("logged %d lines: %v", len(lines), lines)
				}
				if text := fmt.Sprint(lines[0].ContextMap()); !strings.Contains(text, c.says) ||
					strings.Contains(text, "whsec_y") {
					t.Errorf("logged %s", text)
				}
			})
		}
	}
}

// TestTheBackfillsOfSomeAreRead holds that those of no other subscriptions are.
func TestTheBackfillsOfSomeAreRead(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 1)
	for i, id := range []string{"a", "b", "c"} {
		sub, _, err := w.CreateSubscription(t.Context(), subscription(id))
		if err == nil {
			err = w.SetBackfill(t.Context(), sub, fsm.Backfill{Done: i, Total: 7})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := must[map[string]fsm.Backfill](t)(w.BackfillsOf(t.Context(), []string{"c", "none", "a"}))
	if want := map[string]fsm.Backfill{"a": {Total: 7}, "c": {Done: 2, Total: 7}}; !maps.Equal(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
	if none := must[map[string]fsm.Backfill](t)(w.BackfillsOf(t.Context(), nil)); len(none) > 0 {
		t.Errorf("of none it has %v", none)
	}
}
