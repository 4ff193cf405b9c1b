package dispatcher

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reveille/fsm"
)

const ourOrigin = "reveille.test.example"

// consents is a rated store whose endpoints are asked for consent.
type consents struct {
	*rated
	mode fsm.ConsentMode

	mu sync.Mutex
	// says answers a request for consent, and requests are those that came.
	says     func(w http.ResponseWriter, r *http.Request)
	requests []*http.Request
	at       []time.Time
	// origins are those of the deliveries.
	origins []string
}

func withConsent(t *testing.T, mode fsm.ConsentMode, test func(a *consents)) {
	t.Helper()
	withRate(t, func(r *rated) {
		test(&consents{rated: r, mode: mode, says: func(http.ResponseWriter, *http.Request) {}})
	})
}

func (a *consents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if r.Method != http.MethodOptions {
		a.origins = append(a.origins, r.Header.Get("Origin"))
		a.mu.Unlock()
		a.hook.ServeHTTP(w, r)
		return
	}
	a.requests, a.at = append(a.requests, r), append(a.at, time.Now())
	says := a.says
	a.mu.Unlock()
	says(w, r)
}

func (a *consents) start(change ...func(*Config)) *fixture {
	f := start(a.t, a.store, func(c *Config) {
		c.WakingTimeout, c.parkAfter, c.DueInterval, c.ShutdownGrace = never, never, time.Second, time.Second
		c.Consent, c.Origin = a.mode, ourOrigin
		for _, ch := range change {
			ch(c)
		}
	}, without(a.t, a))
	synctest.Wait()
	return f
}

// dueSeldom lets hours pass quickly.
func dueSeldom(c *Config) { c.DueInterval = time.Minute }

func (a *consents) answers(says func(w http.ResponseWriter, r *http.Request)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.says = says
}

// asks returns how many requests for consent came.
func (a *consents) asks() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.requests)
}

func (a *consents) consent(id string) fsm.Consent {
	a.t.Helper()
	if err := a.store.RefreshCatalog(a.t.Context()); err != nil {
		a.t.Error(err)
	}
	sub, _ := a.store.Catalog().Get(id)
	return sub.Consent
}

// key is that of the latest callback.
func (a *consents) key() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, err := url.Parse(a.requests[len(a.requests)-1].Header.Get("WebHook-Request-Callback"))
	if err != nil {
		a.t.Error(err)
	}
	return u.Query().Get("key")
}

func agrees(rate string) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WebHook-Allowed-Origin", r.Header.Get("WebHook-Request-Origin"))
		w.Header().Set("WebHook-Allowed-Rate", rate)
	}
}

func agreesToAnother(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("WebHook-Allowed-Origin", "another.example")
}

// TestWithoutConsentNothingIsSentAndNothingLost takes a subscription from no answer to a callback.
func TestWithoutConsentNothingIsSentAndNothingLost(t *testing.T) {
	withConsent(t, fsm.ConsentRequire, func(a *consents) {
		f := a.start()
		sub := a.subscribe("s", hostA, 120)
		a.events(f, sub, 20)
		pass(time.Second)
		req := a.requests[0]
		if a.asks() != 1 || req.Header.Get("WebHook-Request-Origin") != ourOrigin || req.URL.Path != "/hook" ||
			req.Header.Get("WebHook-Request-Rate") != "120" || req.Header.Get("Authorization") != "" ||
			!strings.HasPrefix(req.Header.Get("WebHook-Request-Callback"), "http://reveille.test/consent/s?key=") {
			t.Fatalf("%d requests, the first has %v", a.asks(), req.Header)
		}
		// Neither a resumption nor an endpoint that is up ends the wait.
		f.resume(a.t, sub.ID)
		out, err := a.store.other.ReleaseHeld(a.t.Context(), sub, fsm.BlockedDown)
		if err != nil {
			t.Error(err)
		}
		f.follow(out)
		const waited = 40 * time.Minute
		pass(waited)
		c := a.store.consumer("s:%2Fs%2F7")
		if n := len(a.to(hostA)); n != 0 || c.Held != fsm.BlockedConsent || c.Attempt != 0 || !c.FirstFailure.IsZero() {
			t.Errorf("%d requests came, and one that waits is %+v", n, c)
		}
		if n := a.store.called("Park"); n > 20*(2+int(waited/consentStep)) {
			t.Errorf("%d calls while 20 wait", n)
		}
		if got, err := f.Test(a.t.Context(), sub); err != nil || got.Failure != fsm.BlockedConsent.Rule().Says {
			t.Errorf("a test delivery: %+v, %v", got, err)
		}
		key := a.key()
		for _, wrong := range []struct{ id, key string }{{"s", ""}, {"s", key + "x"}, {"t", key}, {"", ""}} {
			if _, err := f.GrantConsent(a.t.Context(), wrong.id, wrong.key, 0); !errors.Is(err, fsm.ErrNotFound) {
				t.Errorf("%q: %v", wrong, err)
			}
		}
		stored, err := f.GrantConsent(a.t.Context(), "s", key, 6000)
		if err != nil || stored.Consent.State != fsm.ConsentGranted || stored.Consent.Rate != 6000 {
			t.Fatal(stored.Consent, err)
		}
		if _, err := f.GrantConsent(a.t.Context(), "s", key, 0); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("the key opens twice: %v", err)
		}
		pass(time.Minute)
		if n := len(a.to(hostA)); n != 20 {
			t.Errorf("%d of 20 came", n)
		}
		if len(slices.Compact(a.origins)) != 1 || a.origins[0] != ourOrigin {
			t.Errorf("the deliveries have the origins %q", slices.Compact(a.origins))
		}
		// The endpoint goes on answering nothing, which takes nothing back.
		if _, err := f.AskConsent(a.t.Context(), sub); err != nil {
			t.Error(err)
		}
		if c := a.consent("s"); c.State != fsm.ConsentGranted || a.asks() < 2 {
			t.Errorf("after %d requests it is %+v", a.asks(), c)
		}
		for _, e := range f.logs.All() {
			if text := fmt.Sprint(e.Message, e.ContextMap()); strings.Contains(text, key) {
				t.Errorf("the log has the key: %s", text)
			}
		}
		f.stop()
	})
}

// TestACallbackDuringTheRequestCountsOnce holds that a consent which comes while the request for it is open is told
// once, and that the answer, which says nothing, does not end it.
func TestACallbackDuringTheRequestCountsOnce(t *testing.T) {
	withConsent(t, fsm.ConsentRequire, func(a *consents) {
		f := a.start()
		a.answers(func(http.ResponseWriter, *http.Request) {
			if _, err := f.GrantConsent(a.t.Context(), "s", a.key(), 0); err != nil {
				t.Error(err)
			}
		})
		a.subscribe("s", hostA, 0)
		pass(10 * time.Second)
		if n := f.logs.FilterMessage("an endpoint agrees to deliveries").Len(); n != 1 ||
			a.consent("s").State != fsm.ConsentGranted {
			t.Errorf("told %d times: %+v", n, a.consent("s"))
		}
		f.stop()
	})
}

// TestAConsentIsWithdrawn takes it from an answer that agrees to one that does not, and back.
func TestAConsentIsWithdrawn(t *testing.T) {
	withConsent(t, fsm.ConsentRequire, func(a *consents) {
		f := a.start(dueSeldom)
		a.answers(agrees("*"))
		sub := a.subscribe("s", hostA, 0)
		pass(time.Second)
		a.events(f, sub, 3)
		if n := len(a.to(hostA)); n != 3 || a.consent("s").State != fsm.ConsentGranted {
			t.Fatalf("%d came, %+v", n, a.consent("s"))
		}
		a.answers(agreesToAnother)
		pass(fsm.ConsentFor + fsm.ConsentSpread + time.Minute)
		for i := range 2 {
			f.Deliver(a.store.event(sub, fmt.Sprintf("/s/%d", i), "0002"))
		}
		pass(time.Hour)
		if n := len(a.to(hostA)); n != 3 || a.asks() != 2 || a.consent("s").State != fsm.ConsentRefused {
			t.Errorf("%d came, after %d requests it is %+v", n, a.asks(), a.consent("s"))
		}
		if f.logs.FilterMessage("an endpoint does not agree to deliveries any more").Len() != 1 {
			t.Error("the log does not tell of it")
		}
		a.answers(agrees("*"))
		if now, err := f.AskConsent(a.t.Context(), sub); err != nil || now.Consent.State != fsm.ConsentGranted {
			t.Error(now.Consent, err)
		}
		pass(2 * time.Minute)
		if n := len(a.to(hostA)); n != 5 {
			t.Errorf("%d of 5 came", n)
		}
		f.stop()
	})
}

// TestWhoDoesNotAgreeIsSentLittle holds that all subscriptions of an endpoint have one low rate together, until one
// agrees, and that the rate which it allows is kept.
func TestWhoDoesNotAgreeIsSentLittle(t *testing.T) {
	withConsent(t, fsm.ConsentAsk, func(a *consents) {
		f := a.start(func(c *Config) { c.UnconsentedRate = 30 })
		for _, id := range []string{"s", "t"} {
			a.events(f, a.subscribe(id, hostA, 0), 60)
		}
		a.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.Host == hostB {
				agrees("600")(w, r)
			}
		})
		sub := a.subscribe("u", hostB, 0)
		a.events(f, sub, 1)
		pass(2 * time.Second)
		for i := range 1000 {
			f.Deliver(a.store.event(sub, fmt.Sprintf("/u/more-%d", i), "0001"))
		}
		pass(time.Minute)
		if n := len(a.to(hostA)); n < 28 || most(a.to(hostA)) > 31 {
			t.Errorf("%d came to who does not agree", n)
		}
		if n := len(a.to(hostB)); n < 590 || most(a.to(hostB)) > 611 {
			t.Errorf("%d came to who agrees to 600", n)
		}
		f.stop()
	})
}

// TestARequestForConsentIsRepeated holds when: with longer and longer pauses as long as no answer comes, and about once
// a day after one. What was granted stays meanwhile.
func TestARequestForConsentIsRepeated(t *testing.T) {
	withConsent(t, fsm.ConsentRequire, func(a *consents) {
		f := a.start(dueSeldom)
		a.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		a.subscribe("s", hostA, 0)
		pass(3 * time.Hour)
		if n := a.asks(); n < 8 || n > 14 {
			t.Errorf("%d requests came in three hours without an answer", n)
		}
		if c := a.consent("s"); c.State != fsm.ConsentPending || c.Reason != "the endpoint answered with status 502" {
			t.Errorf("%+v", c)
		}
		a.answers(agrees("*"))
		pass(time.Hour)
		had := a.asks()
		pass(36 * time.Hour)
		if n := a.asks() - had; n < 1 || n > 2 {
			t.Errorf("%d requests came in a day and a half with answers", n)
		}
		a.answers(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		pass(30 * time.Hour)
		if c := a.consent("s"); c.State != fsm.ConsentGranted || c.Failures == 0 {
			t.Errorf("while it is away: %+v", c)
		}
		f.stop()
	})
}

// TestRequestsForConsentFloodNobody holds that an endpoint gets no more of them than the rate for those who have not
// agreed, however many subscriptions name it, and that endpoints that hang hold up no other.
func TestRequestsForConsentFloodNobody(t *testing.T) {
	withConsent(t, fsm.ConsentRequire, func(a *consents) {
		f := a.start()
		a.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.Host != hostB {
				agrees("*")(w, r)
				return
			}
			<-r.Context().Done()
		})
		const each = 40
		for i := range each {
			a.subscribe(fmt.Sprint("a", i), hostA, 0)
			a.subscribe(fmt.Sprint("b", i), fmt.Sprintf("10.1.0.%d", i), 0)
			a.subscribe(fmt.Sprint("c", i), hostB, 0)
		}
		pass(each*time.Second + 5*time.Second)
		var times []time.Time
		for i, r := range a.requests {
			if r.Host == hostA {
				times = append(times, a.at[i])
			}
		}
		slices.SortFunc(times, time.Time.Compare)
		for i, at := range times[min(1, len(times)):] {
			if pause := at.Sub(times[i]); pause < 900*time.Millisecond {
				t.Errorf("%s between two requests", pause)
			}
		}
		if len(times) != each {
			t.Errorf("%d of %d requests came", len(times), each)
		}
		for i := range each {
			if c := a.consent(fmt.Sprint("b", i)); c.State != fsm.ConsentGranted {
				t.Errorf("subscription %d: %+v", i, c)
			}
		}
		f.stop()
	})
}

// TestOneReplicaAsks holds that replicas do not all ask, and that one which stops leaves the request to another.
func TestOneReplicaAsks(t *testing.T) {
	withConsent(t, fsm.ConsentRequire, func(a *consents) {
		f, g := a.start(), a.start()
		a.answers(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(3 * time.Second)
			agrees("*")(w, r)
		})
		a.subscribe("s", hostA, 0)
		pass(time.Hour)
		if a.asks() != 1 {
			t.Errorf("%d requests came", a.asks())
		}
		a.subscribe("t", hostA, 0)
		pass(2 * time.Second)
		f.stop()
		g.stop()
		f = a.start()
		pass(2 * fsm.ConsentLost)
		if c := a.consent("t"); c.State != fsm.ConsentGranted {
			t.Errorf("after %d requests: %+v", a.asks(), c)
		}
		f.stop()
	})
}

// TestBadAnswersToARequestForConsent holds that none takes long, leads elsewhere or counts as consent.
func TestBadAnswersToARequestForConsent(t *testing.T) {
	for name, tt := range map[string]struct {
		says  func(w http.ResponseWriter, r *http.Request)
		state fsm.ConsentState
	}{
		"hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, fsm.ConsentPending},
		"has headers without end": {func(w http.ResponseWriter, r *http.Request) {
			for i := range 4000 {
				w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 100))
			}
			agrees("*")(w, r)
		}, fsm.ConsentPending},
		"redirects": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://"+hostB+"/consents")
			w.WriteHeader(http.StatusFound)
		}, fsm.ConsentPending},
		"agrees with a body without end": {func(w http.ResponseWriter, r *http.Request) {
			agrees("*")(w, r)
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}, fsm.ConsentGranted},
		"has another origin": {agreesToAnother, fsm.ConsentRefused},
		"knows no OPTIONS": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}, fsm.ConsentUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			withConsent(t, fsm.ConsentRequire, func(a *consents) {
				f := a.start()
				a.answers(tt.says)
				a.events(f, a.subscribe("s", hostA, 0), 1)
				pass(askTimeout + 3*time.Second)
				c := a.consent("s")
				if c.State != tt.state || (c.Reason == "") != (c.State == fsm.ConsentGranted) {
					t.Errorf("%+v", c)
				}
				if n := len(a.to(hostA)); n != 0 && tt.state != fsm.ConsentGranted {
					t.Errorf("%d deliveries came", n)
				}
				for _, r := range a.requests {
					if r.Host != hostA {
						t.Errorf("%s was asked", r.Host)
					}
				}
				f.stop()
			})
		})
	}
}

// TestAnotherWebhookNeedsAnotherConsent holds that a consent is for one URL, and a key for one subscription and URL.
func TestAnotherWebhookNeedsAnotherConsent(t *testing.T) {
	withConsent(t, fsm.ConsentRequire, func(a *consents) {
		f := a.start()
		sub := a.subscribe("s", hostA, 0)
		pass(time.Second)
		old := a.key()
		if _, err := a.store.other.ChangeSubscription(a.t.Context(), "s",
			func(s fsm.Subscription) (fsm.Subscription, error) {
				s.Webhook = "http://" + hostB + "/hook"
				return s, nil
			}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.GrantConsent(a.t.Context(), "s", old, 0); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("the key of the URL before: %v", err)
		}
		a.events(f, sub, 1)
		pass(10 * time.Second)
		if a.asks() != 2 || a.requests[1].Host != hostB {
			t.Fatalf("%d requests came", a.asks())
		}
		if _, err := f.GrantConsent(a.t.Context(), "s", a.key(), 0); err != nil {
			t.Error(err)
		}
		pass(time.Second)
		if len(a.to(hostA)) != 0 || len(a.to(hostB)) != 1 {
			t.Errorf("%d and %d came", len(a.to(hostA)), len(a.to(hostB)))
		}
		f.stop()
	})
}

// TestWhoHasAgreedIsCounted holds what the metrics say.
func TestWhoHasAgreedIsCounted(t *testing.T) {
	withConsent(t, fsm.ConsentRequire, func(a *consents) {
		r := prometheus.NewRegistry()
		f := a.start(func(c *Config) { c.Metrics = r })
		a.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.Host == hostA {
				agrees("*")(w, r)
				return
			}
			agreesToAnother(w, r)
		})
		a.subscribe("s", hostA, 0)
		a.subscribe("t", hostB, 0)
		pass(5 * time.Second)
		families, err := r.Gather()
		got := map[string]float64{}
		for _, family := range families {
			if name := family.GetName(); strings.Contains(name, "_consent") {
				for _, m := range family.GetMetric() {
					value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
					got[name+" "+m.GetLabel()[0].GetValue()] = value
				}
			}
		}
		want := map[string]float64{
			"reveille_consent_requests_total granted": 1, "reveille_consent_requests_total refused": 1,
			"reveille_subscriptions_by_consent granted": 1, "reveille_subscriptions_by_consent refused": 1,
			"reveille_subscriptions_by_consent pending": 0, "reveille_subscriptions_by_consent unsupported": 0,
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("the metrics are %v, %v", got, err)
		}
		f.stop()
	})
}

// TestNobodyIsAskedUnlessTheSettingSaysSo holds that a consent of earlier is without effect then, too.
func TestNobodyIsAskedUnlessTheSettingSaysSo(t *testing.T) {
	withConsent(t, fsm.ConsentOff, func(a *consents) {
		f := a.start()
		sub := a.subscribe("s", hostA, 0)
		now := time.Now()
		sub.Consent = fsm.Consent{}.Asked(sub.Webhook, ourOrigin, "k", now, now.Add(time.Hour)).ByKey(1, "used", now)
		a.store.db.PutSubscription(sub)
		a.events(f, sub, 100)
		pass(time.Minute)
		if n := len(a.to(hostA)); n != 100 || a.asks() != 0 || a.store.called("TakeTurns") != 0 || a.origins[0] != "" {
			t.Errorf("%d deliveries and %d requests for consent came, with the origin %q", n, a.asks(), a.origins[0])
		}
		f.stop()
	})
}

// TestWithAHighestRateWhoDoesNotAgreeHasATenthOfIt holds that both kinds together get no more than it.
func TestWithAHighestRateWhoDoesNotAgreeHasATenthOfIt(t *testing.T) {
	withConsent(t, fsm.ConsentAsk, func(a *consents) {
		a.answers(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("WebHook-Request-Callback"), "/yes?") {
				agrees("*")(w, r)
			}
		})
		f := a.start(func(c *Config) { c.MaxRate, c.UnconsentedRate = 600, 300 })
		for _, id := range []string{"yes", "no1", "no2", "no3"} {
			sub := a.subscribe(id, hostA, 0)
			pass(time.Second)
			a.events(f, sub, 1000)
		}
		pass(2 * time.Minute)
		came, of := a.to(hostA), map[string]int{}
		for _, stream := range a.streams {
			of[strings.Split(stream, "/")[1]]++
		}
		bursts := (fsm.Limit{Rate: 540}).Burst() + (fsm.Limit{Rate: 60}).Burst()
		if n := most(came); n > 600+bursts || of["yes"] < 950 {
			t.Errorf("%d came within one minute: %v", n, of)
		}
		for _, id := range []string{"no1", "no2", "no3"} {
			if of[id] < 30 || of[id] > 50 {
				t.Errorf("%s does not have its part: %v", id, of)
			}
		}
		f.stop()
	})
}

// TestARequestForConsentKeepsItsTurn holds that all subscriptions of an endpoint are asked for in the end, however few
// requests a minute it gets. A release that was cut short is made up for by the next request.
func TestARequestForConsentKeepsItsTurn(t *testing.T) {
	withConsent(t, fsm.ConsentRequire, func(a *consents) {
		a.answers(agrees("*"))
		ids := []string{"one", "two", "three"}
		for _, id := range ids {
			a.subscribe(id, hostA, 0)
		}
		f := a.start(func(c *Config) { c.UnconsentedRate = 1 })
		pass(3*time.Minute + 10*time.Second)
		for _, id := range ids {
			if c := a.consent(id); c.State != fsm.ConsentGranted {
				t.Errorf("%s: %+v", id, c)
			}
		}
		if n := a.asks(); n != len(ids) {
			t.Errorf("%d requests came", n)
		}
		f.stop()
	})
}

// TestARequestForConsentWaitsForItsOrigin holds that a Retry-After holds for it, too, whoever was told.
func TestARequestForConsentWaitsForItsOrigin(t *testing.T) {
	withConsent(t, fsm.ConsentRequire, func(a *consents) {
		a.answers(agrees("*"))
		f := a.start(dueSeldom)
		wait := fsm.EndpointFailure{Shown: true, RetryAfter: time.Hour}
		if _, err := a.store.FailEndpoint(a.t.Context(), a.subscribe("told", hostA, 0), wait); err != nil {
			t.Error(err)
		}
		asked := time.Now()
		sub := a.subscribe("s", hostA+":080", 0)
		pass(time.Minute)
		if _, err := f.AskConsent(a.t.Context(), sub); !errors.Is(err, fsm.ErrNoTurn) {
			t.Errorf("for an operator: %v", err)
		}
		a.subscribe("other", hostB, 0)
		pass(time.Until(asked.Add(time.Hour - time.Millisecond)))
		a.mu.Lock()
		var hosts []string
		for _, r := range a.requests {
			hosts = append(hosts, r.Host)
		}
		a.mu.Unlock()
		if !slices.Equal(hosts, []string{hostB}) {
			t.Errorf("%q were asked, want %s alone", hosts, hostB)
		}
		pass(time.Minute)
		if c := a.consent("s"); c.State != fsm.ConsentGranted {
			t.Errorf("after that: %+v", c)
		}
		f.stop()
	})
}

// TestDailyRequestsForConsentAreSpread holds that what was asked for at once is not asked for at once again.
func TestDailyRequestsForConsentAreSpread(t *testing.T) {
	const all, parts = 1000, 10
	var in [parts]int
	asked := time.UnixMilli(1_790_000_000_000)
	for i := range all {
		sub := fsm.Subscription{ID: fmt.Sprint("s", i)}
		late := nextAsk(sub, asked).Sub(asked.Add(fsm.ConsentFor))
		if late < 0 || late >= fsm.ConsentSpread || !nextAsk(sub, asked).Equal(nextAsk(sub, asked)) {
			t.Fatalf("%s is asked for %s late", sub.ID, late)
		}
		in[late*parts/fsm.ConsentSpread]++
	}
	for i, n := range in {
		if n < all/parts/2 || n > all/parts*2 {
			t.Errorf("%d of %d come in part %d of %d", n, all, i, parts)
		}
	}
}
