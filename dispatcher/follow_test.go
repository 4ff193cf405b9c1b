package dispatcher

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
)

// asking is a store whose transitions each report a stream at rest: "/asked/<transition>".
type asking struct{ *memStore }

func ask(by string, o fsm.Outcome, err error) (fsm.Outcome, error) {
	o.Idle = append(o.Idle, asked(by)...)
	return o, err
}

func asked(by string) []string { return []string{"/asked/" + by} }

func (s asking) Accept(ctx context.Context, r fsm.DeliveryRef) (fsm.Outcome, error) {
	o, err := s.memStore.Accept(ctx, r)
	return ask("Accept", o, err)
}

func (s asking) Begin(ctx context.Context, r fsm.DeliveryRef, by string) (fsm.Outcome, error) {
	o, err := s.memStore.Begin(ctx, r, by)
	return ask("Begin", o, err)
}

func (s asking) Park(
	ctx context.Context, r fsm.DeliveryRef, why fsm.BlockReason, wait time.Duration,
) (fsm.Outcome, error) {
	o, err := s.memStore.Park(ctx, r, why, wait)
	return ask("Park", o, err)
}

// TestWhatATransitionAsksForIsDoneWhoeverCallsIt holds that the outcome of a transition reaches its observers, wherever
// the transition is run from.
func TestWhatATransitionAsksForIsDoneWhoeverCallsIt(t *testing.T) {
	accepts := func(http.ResponseWriter, *http.Request) {}
	// first sends one wake, and second makes another one wait for it.
	first := func(f *fixture, sub fsm.Subscription) { f.Deliver(f.store.event(sub, "/s/1", "0001")) }
	second := func(f *fixture, sub fsm.Subscription) { f.Deliver(f.store.event(sub, "/s/2", "0001")) }
	for _, tt := range []struct {
		name string
		// unparked is true if the store is not told of wakes that wait.
		unparked bool
		act      func(t *testing.T, f *fixture)
		want     []string
	}{
		{"an attempt that is accepted", false, func(t *testing.T, f *fixture) {
			first(f, f.store.addSubscription("s", endpoint(t, accepts)))
		}, asked("Accept")},
		{"a 2xx whose body is slow", false, func(t *testing.T, f *fixture) {
			first(f, f.store.addSubscription("s", endpoint(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})))
		}, asked("Accept")},
		{"an attempt that this version cannot make", false, func(t *testing.T, f *fixture) {
			sub := f.store.addSubscription("s", endpoint(t, accepts))
			sub.Format = "of-a-later-version"
			f.store.db.PutSubscription(sub)
			first(f, sub)
		}, asked("Park")},
		{"a wake whose subscription is not on the list", false, func(t *testing.T, f *fixture) {
			sub := f.store.addSubscription("s", endpoint(t, accepts))
			wakes := f.store.event(sub, "/s/1", "0001")
			f.store.deleteSubscription(t, sub.ID)
			f.Deliver(wakes)
		}, asked("Park")},
		{"a wake that waits, and begins", false, func(t *testing.T, f *fixture) {
			g := newShut(t)
			sub := f.store.addSubscription("s", g.url)
			first(f, sub)
			second(f, sub)
			f.store.untilCalls(t, "Park", 1)
			close(g.opened)
		}, append(asked("Park"), asked("Begin")...)},
		{"a wake that waits, of which nothing is left", false, func(t *testing.T, f *fixture) {
			g := newShut(t)
			sub := f.store.addSubscription("s", g.url)
			first(f, sub)
			second(f, sub)
			f.store.untilCalls(t, "Park", 1)
			f.store.deleteSubscription(t, sub.ID)
			close(g.opened)
		}, append(asked("Park"), asked("Begin")...)},
		{"a wake that is handed back at a stop", true, func(t *testing.T, f *fixture) {
			sub := f.store.addSubscription("s", hanging(t, func() {}))
			first(f, sub)
			second(f, sub)
			f.stop()
		}, asked("Park")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := start(t, newMemStore(), func(c *Config) {
				one(c)
				if tt.unparked {
					c.WakingTimeout, c.parkAfter = never, never
				}
				c.Store = asking{c.Store.(*memStore)}
			})
			tt.act(t, f)
			f.store.until(t, fmt.Sprintf("%q is done", tt.want), func() bool {
				done := f.idle.all()
				return !slices.ContainsFunc(tt.want, func(path string) bool { return !slices.Contains(done, path) })
			})
		})
	}
}
