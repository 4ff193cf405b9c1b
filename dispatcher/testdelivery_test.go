package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/fsm/router"
)

// modes returns a subscription of each mode, to a webhook.
func modes(s *memStore, webhook string) map[string]fsm.Subscription {
	push := s.pushSub(webhook, func(sub *fsm.Subscription) { sub.ID, sub.Generation = "pushed", "g-pushed" })
	return map[string]fsm.Subscription{"wake": s.addSubscription("woken", webhook), "push": push}
}

// TestWhatATestDeliveryShows holds for both modes what is shown of each answer.
func TestWhatATestDeliveryShows(t *testing.T) {
	long := strings.Repeat("é", fsm.MaxLetterAnswer)
	for name, tc := range map[string]struct {
		status  int
		body    string
		shown   string
		failure string
	}{
		"a 204":                       {status: 204},
		"a 200 with a body":           {status: 200, body: `{"done":false}`, shown: `{"done":false}`},
		"the beginning of a long one": {status: 200, body: long, shown: long[:fsm.MaxLetterAnswer]},
		"a refusal":                   {status: 401, body: "no", shown: "no", failure: "status 401"},
		"a 410":                       {status: 410, failure: "status 410"},
		"a 503":                       {status: 503, failure: "status 503"},
		"a redirect": {
			status: 307, failure: "status 307 to another path of the same host (redirects are not followed)",
		},
		"no answer": {failure: "no answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if tc.status == 0 {
					<-r.Context().Done()
					return
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			f := start(t, newMemStore(), func(c *Config) {
				if tc.status == 0 {
					c.RequestTimeout = 50 * time.Millisecond
				}
			})
			for mode, sub := range modes(f.store, hook) {
				if tc.status == 0 && mode == "push" {
					sub.Timeout = 50 * time.Millisecond
				}
				got, err := f.Test(t.Context(), sub)
				if err != nil || got.Status != tc.status || string(got.Body) != tc.shown || got.Failure != tc.failure ||
					got.Took <= 0 {
					t.Errorf("%s: %+v, %v", mode, got, err)
				}
			}
		})
	}
}

// TestATestDeliveryIsSentAsDeliveriesAre holds what the endpoint gets, and by which rules.
func TestATestDeliveryIsSentAsDeliveriesAre(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	type request struct {
		*http.Request
		body []byte
	}
	got := make(chan request, 1)
	hook := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r, body}
	})
	f := start(t, newMemStore(), func(c *Config) { c.Clock = func() time.Time { return now } })
	for mode, sub := range modes(f.store, hook+"/hook?a=b") {
		sub.Headers = map[string]string{"X-Team": "blue"}
		sub.Authorization = fsm.Authorization{Query: "access_token", Secret: "hush"}
		sub.Previous = fsm.PreviousSecret{Secret: "whsec_Zmlyc3Q=", Until: now.Add(time.Hour)}
		if _, err := f.Test(t.Context(), sub); err != nil {
			t.Fatal(err)
		}
		r := <-got
		var event struct{ Type, ID string }
		if err := json.Unmarshal(r.body, &event); err != nil || event.Type != format.TestType {
			t.Errorf("%s: %s, %v", mode, r.body, err)
		}
		want := map[string]string{format.IDHeader: event.ID, "X-Team": "blue", "User-Agent": "Reveille/test"}
		signature := r.Header.Get(format.SignatureHeader)
		if mode == "wake" {
			want[format.SignatureHeader] = format.Sign(sub.Previous.Secret, now, r.body)
			want[format.NewSignatureHeader] = format.Sign(sub.Secret, now, r.body)
		} else {
			for _, secret := range []string{sub.Secret, sub.Previous.Secret} {
				e := format.ExamineStandard(
					secret, event.ID, r.Header.Get(format.TimestampHeader), signature, r.body, now, 0)
				if !e.OK() {
					t.Errorf("%s: the signature %s: %+v", mode, signature, e)
				}
			}
		}
		for header, want := range want {
			if h := r.Header.Get(header); h != want || h == "" {
				t.Errorf("%s: %s is %q, want %q", mode, header, h, want)
			}
		}
		if r.Method != http.MethodPost || r.URL.RequestURI() != "/hook?a=b&access_token=hush" {
			t.Errorf("%s: %s %s", mode, r.Method, r.URL)
		}
	}
}

// TestATestDeliveryIsSentWhileTheSubscriptionIsPaused holds for both modes that a pause does not matter.
func TestATestDeliveryIsSentWhileTheSubscriptionIsPaused(t *testing.T) {
	hook := endpoint(t, func(http.ResponseWriter, *http.Request) {})
	f := start(t, newMemStore(), nil)
	for mode, sub := range modes(f.store, hook) {
		f.store.pause(t, sub.ID)
		if err := f.store.RefreshCatalog(t.Context()); err != nil {
			t.Fatal(err)
		}
		sub, _ = f.store.Catalog().Get(sub.ID)
		if got, err := f.Test(t.Context(), sub); !sub.Paused || err != nil || got.Status != http.StatusOK {
			t.Errorf("%s: %+v, %v", mode, got, err)
		}
	}
}

// TestATestDeliveryGoesNowhereElseThanDeliveries holds that both parts of the guard judge it. A subscription that this
// version cannot deliver for is not tested.
func TestATestDeliveryGoesNowhereElseThanDeliveries(t *testing.T) {
	hook := endpoint(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	f := start(t, newMemStore(), func(c *Config) { c.AllowInsecure = false })
	for _, webhook := range []string{hook, "https://localhost:1", "https://10.0.0.1/hook"} {
		for mode, sub := range modes(f.store, webhook) {
			got, err := f.Test(t.Context(), sub)
			if err != nil || got.Status != 0 || got.Failure != "the webhook URL is not allowed any more" {
				t.Errorf("%s to %s: %+v, %v", mode, webhook, got, err)
			}
		}
	}
	sub := modes(f.store, hook)["push"]
	sub.Format = "later"
	if got, err := f.Test(t.Context(), sub); err != nil || !strings.Contains(got.Failure, `the format "later"`) {
		t.Errorf("of a later version: %+v, %v", got, err)
	}
}

// TestATestDeliveryChangesNothing holds that it changes no metric, calls no method of the store and reaches no
// observer.
func TestATestDeliveryChangesNothing(t *testing.T) {
	hook := endpoint(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	metrics := prometheus.NewRegistry()
	store := newMemStore()
	subs := modes(store, hook)
	f := start(t, store, func(c *Config) { c.Metrics = metrics }, func(d *Dispatcher) {
		d.cfg.Outcomes.Observe(router.Observer{
			Attempt: func(a fsm.Attempt) { t.Errorf("an observer is told: %+v", a) },
		})
	})
	attempted := func() string {
		families, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(families)
	}
	before := attempted()
	for range fsm.DownAfter + 1 {
		for mode, sub := range subs {
			if got, err := f.Test(t.Context(), sub); err != nil || got.Status != http.StatusGone {
				t.Fatalf("%s: %+v, %v", mode, got, err)
			}
		}
	}
	for mode, sub := range subs {
		if _, _, trouble := store.Endpoints().Get(sub.Generation); trouble {
			t.Errorf("%s: the endpoint is in trouble", mode)
		}
	}
	if after := attempted(); after != before {
		t.Errorf("the metrics were\n%s\nand are\n%s", before, after)
	}
	for _, op := range []string{
		"Fail", "Park", "Begin", "Accept", "Finish", "Deliver", "FailEndpoint", "RecoverEndpoint", "ProbeEndpoint",
		"ReturnProbe",
	} {
		if n := store.db.Calls(op); n != 0 {
			t.Errorf("%s was called %d times", op, n)
		}
	}
}

// TestTestDeliveriesInFlightAreFew holds that there is one for each subscription at most, and a bounded number of all.
// The caller may leave, and a stop ends it.
func TestTestDeliveriesInFlightAreFew(t *testing.T) {
	arrived := make(chan struct{}, maxTests+1)
	hook := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	f := start(t, newMemStore(), func(c *Config) {
		c.ShutdownGrace, c.RequestTimeout = time.Millisecond, time.Hour
	})
	results := make(chan string, maxTests+1)
	test := func(ctx context.Context, id string) {
		got, err := f.Test(ctx, f.store.addSubscription(id, hook))
		results <- fmt.Sprint(got.Failure, err)
	}
	ctx, leave := context.WithCancel(t.Context())
	go test(ctx, "s0")
	<-arrived
	refused := func(id string) {
		t.Helper()
		if _, err := f.Test(t.Context(), f.store.addSubscription(id, hook)); !errors.Is(err, fsm.ErrTesting) {
			t.Errorf("another of %s: %v", id, err)
		}
	}
	refused("s0")
	leave()
	<-results
	for n := range maxTests {
		go test(t.Context(), fmt.Sprintf("s%d", n)) // s0 again: the one that was left is over
		<-arrived
	}
	refused("more")
	f.stop()
	for range maxTests {
		if got := <-results; got != reasonStopping+"<nil>" {
			t.Errorf("it ended with %q", got)
		}
	}
	got, err := f.Test(t.Context(), f.store.addSubscription("s0", hook))
	if err != nil || got.Failure != reasonStopping {
		t.Errorf("after the stop: %+v, %v", got, err)
	}
}
