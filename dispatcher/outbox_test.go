package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/test/harness"
)

// handed is a dispatcher on injected time, with a stream of events that were handed over for one target.
type handed struct {
	t     *testing.T
	store *memStore
	sub   fsm.Subscription
	// events are those of the stream, at the offsets 1, 2 and so on.
	events []string
	// came are the ids and attempts of the deliveries, in turn.
	came    []string
	headers []http.Header
	answer  func(id string) int
}

func withHanded(t *testing.T, test func(h *handed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &handed{t: t, store: newMemStore(), answer: func(string) int { return http.StatusOK }}
		h.sub = h.store.pushSub("http://"+hostA+"/hook", func(s *fsm.Subscription) {
			s.Format, s.Ordering, s.Retry = fsm.FormatOutbox, fsm.OrderingNone, fsm.DefaultOutboxConfig.Backoffs()
		})
		test(h)
	})
}

func (h *handed) event(id string, change func(*fsm.OutboxEvent)) {
	e := fsm.OutboxEvent{
		ID: fsm.NewOutboxID(0, id), Key: "key of " + id, Type: "push", Target: h.sub.Webhook,
		CreatedAt: time.Now().UnixMilli(),
		Payload:   `"` + id + `"`,
	}
	if change != nil {
		change(&e)
	}
	text, err := json.Marshal(e)
	if err != nil {
		h.t.Error(err)
	}
	h.events = append(h.events, string(text))
}

func (h *handed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.Header.Get("X-Webhook-ID"), "whe_0_")
	h.store.mu.Lock()
	h.came = append(h.came, id+" "+r.Header.Get("X-Webhook-Attempt"))
	h.headers = append(h.headers, r.Header)
	h.store.mu.Unlock()
	w.WriteHeader(h.answer(id))
}

// run delivers the events, and waits.
func (h *handed) run(wait time.Duration) {
	f := start(h.t, h.store, func(c *Config) {
		c.DueInterval, c.ShutdownGrace = 200*time.Millisecond, time.Second
		c.ReadBatch = func(
			_ context.Context, _, _ string, at, end fsm.Offset, _ int, _ int64, _ func([]byte) bool,
		) (fsm.Batch, error) {
			n := 0
			if at != fsm.Start {
				_, _ = fmt.Sscan(string(at), &n)
			}
			to := fsm.Offset(fmt.Sprint(n + 1))
			return fsm.Batch{
				ContentType: "application/json", JSON: true, Events: [][]byte{[]byte(h.events[n])}, From: at, To: to,
				Within: to, Tail: fsm.Offset(fmt.Sprint(len(h.events))),
			}, nil
		}
	}, without(h.t, h))
	f.Deliver(h.store.event(h.sub, "/s/1", fsm.Offset(fmt.Sprint(len(h.events)))))
	pass(wait)
	f.stop()
}

// is compares what came and what became of the events.
func (h *handed) is(came []string, states map[string]fsm.OutboxStatus) {
	h.t.Helper()
	if !slices.Equal(h.came, came) {
		h.t.Errorf("%q came, want %q", h.came, came)
	}
	for id, want := range states {
		e, err := h.store.other.OutboxEvent(h.t.Context(), fsm.NewOutboxID(0, id))
		if err != nil || e.OutboxState.Status != want {
			h.t.Errorf("%s is %+v, %v; want %s", id, e, err, want)
		}
	}
}

// TestAnEventThatLiesInItsStreamTwiceIsSentOnce is about a hand-over that was repeated: before the event is over, and
// after.
func TestAnEventThatLiesInItsStreamTwiceIsSentOnce(t *testing.T) {
	withHanded(t, func(h *handed) {
		for _, id := range []string{"a", "a", "fails", "fails", "dead", "dead", "b"} {
			h.event(id, nil)
		}
		tries := 0
		h.answer = func(id string) int {
			switch {
			case id == "dead":
				return http.StatusBadRequest
			case id == "fails" && tries < 2:
				tries++
				return http.StatusInternalServerError
			}
			return http.StatusOK
		}
		h.run(time.Minute)
		h.is([]string{"a 1", "fails 1", "dead 1", "b 1", "fails 2", "fails 3"}, map[string]fsm.OutboxStatus{
			"a": fsm.OutboxDelivered, "fails": fsm.OutboxDelivered, "dead": fsm.OutboxDead, "b": fsm.OutboxDelivered,
		})
	})
}

// TestAnEventHasItsOwnNumberOfAttempts holds it for fewer and for more than the schedule has. Probes of an endpoint
// that is down do not count.
func TestAnEventHasItsOwnNumberOfAttempts(t *testing.T) {
	for _, tc := range []struct{ most, want int }{{0, 5}, {1, 1}, {2, 2}, {7, 7}} {
		withHanded(t, func(h *handed) {
			h.answer = func(string) int { return http.StatusTooEarly }
			h.event("a", func(e *fsm.OutboxEvent) { e.MaxAttempts = tc.most })
			h.run(10 * time.Minute)
			if came := slices.Compact(slices.Clone(h.came)); len(came) != tc.want {
				h.t.Errorf("%q came, want %d attempts", h.came, tc.want)
			}
			h.is(h.came, map[string]fsm.OutboxStatus{"a": fsm.OutboxDead})
		})
	}
}

// TestWhatNobodyHasHandedOverIsNotSent is about events that somebody else has written to the stream.
func TestWhatNobodyHasHandedOverIsNotSent(t *testing.T) {
	withHanded(t, func(h *handed) {
		h.event("old", func(e *fsm.OutboxEvent) {
			e.CreatedAt = time.Now().Add(-fsm.OutboxRetention).UnixMilli() // it has expired
		})
		h.event("moved", func(e *fsm.OutboxEvent) { e.Target = "http://" + hostB + "/hook" })
		h.event("", func(e *fsm.OutboxEvent) { e.ID = "" })
		h.events = append(h.events, `[]`)
		h.event("a", nil)
		h.run(time.Minute)
		h.is([]string{"a 1"}, map[string]fsm.OutboxStatus{"a": fsm.OutboxDelivered})
	})
}

// TestAnEventIsNotSentWithoutTheStore holds that nothing goes out that the store could not note.
func TestAnEventIsNotSentWithoutTheStore(t *testing.T) {
	withHanded(t, func(h *handed) {
		h.event("a", nil)
		times := 0
		h.store.err = func(op string) error {
			if op == "TakeEvent" && times < 3 {
				times++
				return fsm.ErrUnavailable
			}
			return nil
		}
		h.run(time.Minute)
		h.is([]string{"a 1"}, map[string]fsm.OutboxStatus{"a": fsm.OutboxDelivered})
		if times != 3 {
			h.t.Errorf("the store was away %d times", times)
		}
	})
}

// TestACancelledEventIsNotSent holds it for an event that was never sent, and for one that waits for its next attempt.
// What is under way, or delivered, cannot be cancelled.
func TestACancelledEventIsNotSent(t *testing.T) {
	withHanded(t, func(h *handed) {
		for _, id := range []string{"early", "fails", "b", "done"} {
			h.event(id, nil)
		}
		early := fsm.OutboxEvent{ID: fsm.NewOutboxID(0, "early")}
		if made, err := h.store.AcceptEvent(h.t.Context(), early, "/s/1", ""); err != nil || !made {
			h.t.Fatal(made, err)
		}
		cancels := func(id string, want bool) {
			got, err := h.store.other.CancelEvent(h.t.Context(), fsm.NewOutboxID(0, id))
			if err != nil || got != want {
				h.t.Errorf("%s is cancelled: %t, %v; want %t", id, got, err, want)
			}
		}
		cancels("early", true)
		h.answer = func(id string) int {
			switch id {
			case "fails":
				cancels("fails", false)
				return http.StatusInternalServerError
			case "b":
				cancels("fails", true)
			}
			return http.StatusOK
		}
		h.run(time.Minute)
		cancels("done", false)
		h.is([]string{"fails 1", "b 1", "done 1"}, map[string]fsm.OutboxStatus{
			"early": fsm.OutboxCancelled, "fails": fsm.OutboxCancelled, "b": fsm.OutboxDelivered,
			"done": fsm.OutboxDelivered,
		})
	})
}

// TestAConfigurationHoldsFromTheNextAttempt changes the number of attempts and the delays between two of them. It gives
// the provider a secret, and then another one, which signs beside the first.
func TestAConfigurationHoldsFromTheNextAttempt(t *testing.T) {
	withHanded(t, func(h *handed) {
		h.event("a", func(e *fsm.OutboxEvent) { e.Provider = "github" })
		newSecret := fsm.SignatureStandardWebhooks.NewSecret
		first, second := newSecret([]byte("1")), newSecret([]byte("2"))
		change := func(change func(fsm.OutboxConfig) fsm.OutboxConfig) {
			_, _, err := h.store.other.ChangeOutboxConfig(h.t.Context(),
				func(c fsm.OutboxConfig) (fsm.OutboxConfig, error) { return change(c), nil })
			if err != nil {
				h.t.Error(err)
			}
		}
		var at []time.Time
		h.answer = func(string) int {
			at = append(at, time.Now())
			switch len(at) {
			case 1:
				change(func(c fsm.OutboxConfig) fsm.OutboxConfig {
					c.MaxAttempts, c.InitialBackoffMs, c.BackoffMultiplier, c.MaxBackoffMs = 3, 60_000, 1, 60_000
					return c.WithSecret("github", first, time.Now())
				})
			case 2:
				change(func(c fsm.OutboxConfig) fsm.OutboxConfig { return c.WithSecret("github", second, time.Now()) })
			}
			return http.StatusInternalServerError
		}
		h.run(10 * time.Minute)
		h.is([]string{"a 1", "a 2", "a 3"}, map[string]fsm.OutboxStatus{"a": fsm.OutboxDead})
		if wait := at[2].Sub(at[1]); wait < 48*time.Second || wait > 73*time.Second {
			h.t.Errorf("the third attempt came after %s", wait)
		}
		for i, want := range [][]string{nil, {first}, {first, second}} {
			for _, secret := range []string{first, second} {
				signs := harness.VerifyStandard(secret, h.headers[i], []byte(`"a"`), at[i]) == nil
				if want := slices.Contains(want, secret); signs != want {
					h.t.Errorf("attempt %d is signed by %s: %t, want %t", i+1, secret, signs, want)
				}
			}
		}
	})
}

// TestTheRequestOfAnEventThatWasHandedOverIsBuiltAgain holds that it is the event's, with its attempt, and that another
// event at its place is not shown for it.
func TestTheRequestOfAnEventThatWasHandedOverIsBuiltAgain(t *testing.T) {
	withHanded(t, func(h *handed) {
		h.event("a", nil)
		h.event("b", nil)
		var over []fsm.LoggedAttempt
		read := func(
			_ context.Context, _, _ string, at, _ fsm.Offset, _ int, _ int64, _ func([]byte) bool,
		) (fsm.Batch, error) {
			return fsm.Batch{JSON: true, Events: [][]byte{[]byte(h.events[0])}, From: at, To: "1", Tail: "1"}, nil
		}
		f := start(h.t, h.store, func(c *Config) { c.ReadBatch = read }, without(h.t, h), func(d *Dispatcher) {
			d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) {
				over = append(over, fsm.LoggedAttemptOf(a, fsm.LogAll))
			}})
		})
		f.Deliver(h.store.event(h.sub, "/s/1", "1"))
		pass(time.Second)
		e := over[0]
		r, err := f.Rebuild(h.t.Context(), h.sub, 0, e)
		if err != nil || string(r.Body) != `"a"` || r.Header["X-Webhook-Attempt"][0] != "1" ||
			r.Header["X-Webhook-Id"][0] != h.headers[0].Get("X-Webhook-Id") {
			h.t.Errorf("%s %v, %v", r.Body, r.Header, err)
		}
		h.events = h.events[1:]
		var not *fsm.NotRebuiltError
		if _, err = f.Rebuild(h.t.Context(), h.sub, 0, e); !errors.As(err, &not) || not.Code != fsm.CodeEventsChanged {
			h.t.Errorf("of another event: %v", err)
		}
		f.stop()
	})
}
