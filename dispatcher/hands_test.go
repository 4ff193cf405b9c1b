package dispatcher

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/fsm/bell"
)

// trouble is what happens to a call to the store.
type trouble struct {
	Kind string
	// For is how long the call hangs, or how late it is carried out.
	For time.Duration
}

// The kinds of trouble.
const (
	noTrouble = "none"
	// A refused call is not carried out. An unanswered one is, but its reply is lost.
	refused, unanswered = "refused", "unanswered"
	// A slow call is carried out late. A late one is carried out after its caller was told that it failed.
	slow, late = "slow", "late"
)

// troubled is a store whose calls about wakes that wait meet trouble, one after the other, until there is none left.
type troubled struct {
	*memStore
	mu       sync.Mutex
	troubles []trouble
	calls    sync.WaitGroup
}

func (s *troubled) next() trouble {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.troubles) == 0 {
		return trouble{Kind: noTrouble}
	}
	t := s.troubles[0]
	s.troubles = s.troubles[1:]
	return t
}

func (s *troubled) meet(ctx context.Context, call func(context.Context) (fsm.Outcome, error)) (fsm.Outcome, error) {
	t := s.next()
	switch t.Kind {
	case refused:
		return fsm.Outcome{}, fsm.ErrUnavailable
	case unanswered:
		_, _ = call(ctx)
		return fsm.Outcome{}, fsm.ErrUnavailable
	case slow:
		bell.Sleep(ctx, t.For)
	case late:
		s.calls.Go(func() {
			time.Sleep(t.For)
			_, _ = call(context.WithoutCancel(ctx))
		})
		return fsm.Outcome{}, fsm.ErrUnavailable
	}
	return call(ctx)
}

func (s *troubled) Begin(ctx context.Context, r fsm.DeliveryRef, by string) (fsm.Outcome, error) {
	return s.meet(ctx, func(ctx context.Context) (fsm.Outcome, error) { return s.memStore.Begin(ctx, r, by) })
}

func (s *troubled) Park(
	ctx context.Context, r fsm.DeliveryRef, why fsm.BlockReason, wait time.Duration,
) (fsm.Outcome, error) {
	return s.meet(ctx, func(ctx context.Context) (fsm.Outcome, error) { return s.memStore.Park(ctx, r, why, wait) })
}

// crowd is a burst of wakes of one subscription for few slots, and the trouble of the store meanwhile.
type crowd struct {
	Wakes, Slots int
	// Takes is how long the endpoint takes for each wake.
	Takes    []time.Duration
	Patience time.Duration
	Troubles []trouble
}

func drawCrowd(t *rapid.T) (c crowd) {
	c.Wakes, c.Slots = rapid.IntRange(2, 12).Draw(t, "wakes"), rapid.IntRange(1, 3).Draw(t, "slots")
	takes := rapid.SampledFrom([]time.Duration{0, time.Second, 3 * time.Second})
	for range c.Wakes {
		c.Takes = append(c.Takes, takes.Draw(t, "takes"))
	}
	c.Patience = rapid.SampledFrom([]time.Duration{0, 5 * time.Minute}).Draw(t, "patience")
	for range rapid.IntRange(0, 12).Draw(t, "calls that meet trouble") {
		c.Troubles = append(c.Troubles, trouble{
			rapid.SampledFrom([]string{noTrouble, refused, unanswered, slow, late}).Draw(t, "trouble"),
			rapid.SampledFrom([]time.Duration{
				time.Millisecond, time.Second, 3 * time.Second, 6 * time.Second, 15 * time.Second,
			}).Draw(t, "for"),
		})
	}
	return c
}

// within is a time in which all wakes are delivered, even if one call after the other hangs. The deadlines are further
// off.
func (c crowd) within() (within time.Duration) {
	for _, takes := range c.Takes {
		within += takes
	}
	for _, t := range c.Troubles {
		within += min(t.For, reportTimeout) + 2*time.Second
	}
	return within + 5*time.Second
}

// deliver delivers the wakes, and says what is wrong with that.
func (c crowd) deliver(t *testing.T) (wrong string) {
	synctest.Test(t, func(t *testing.T) {
		inner := newMemStore()
		inner.setWaking(never)
		store := &troubled{memStore: inner, troubles: c.Troubles}
		sub := inner.addSubscription("s", hookURL)
		if c.Patience > 0 {
			sub.Timeout, sub.Retry = c.Patience-fsm.AttemptMargin, []time.Duration{time.Hour}
			inner.db.PutSubscription(sub)
		}
		h := &hook{t: t, answer: func(n int, w http.ResponseWriter, _ *http.Request) {
			if n <= c.Wakes {
				time.Sleep(c.Takes[n-1])
			}
			answersDone(w)
		}}
		f := start(t, inner, func(cfg *Config) {
			cfg.Store, cfg.MaxInFlight, cfg.MaxInFlightPerSubscription = store, c.Slots+1, c.Slots
			cfg.parkAfter = time.Second
		}, without(t, h))
		for n := range c.Wakes {
			f.Deliver(inner.event(sub, fmt.Sprintf("/s/%d", n), "0001"))
		}
		began := time.Now()
		for time.Since(began) < c.within() {
			pass(time.Second)
		}
		for n := range c.Wakes {
			id := fsm.ConsumerID("s", fmt.Sprintf("/s/%d", n))
			if got := inner.consumer(id); got.State != fsm.Idle && wrong == "" {
				wrong = fmt.Sprintf("after %s one is not delivered: %+v", c.within(), got)
			}
		}
		if got := len(h.attempts()); got > c.Wakes && wrong == "" {
			wrong = fmt.Sprintf("%d requests for %d wakes", got, c.Wakes)
		}
		f.stop()
		store.calls.Wait()
	})
	return wrong
}

// TestAWakeInMemoryIsBegunOrGivenBack holds for calls that fail, hang or come late, and for calls whose replies are
// lost. No wake waits for its deadline, unless its replica died.
func TestAWakeInMemoryIsBegunOrGivenBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		if wrong := drawCrowd(rt).deliver(t); wrong != "" {
			rt.Fatal(wrong)
		}
	})
}
