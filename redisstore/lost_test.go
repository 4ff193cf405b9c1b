package redisstore_test

import (
	"crypto/rand"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
	"reveille/redisstore"
	"reveille/test/harness"
)

// TestAResumptionThatIsLostIsMadeUpFor holds of a consumer that waits for a resumption: the list of subscriptions has
// the resumption, and the consumer's partition may have lost it.
func TestAResumptionThatIsLostIsMadeUpFor(t *testing.T) {
	t.Parallel()
	r := harness.StartRedis(t)
	rdb, closeRedis, err := redisstore.ConnectPatiently(r.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeRedis() }()
	ctx, incarnation := t.Context(), "one"
	s := redisstore.New(rdb, redisstore.Options{Partitions: 1, Timing: timing, Draw: func() redisstore.Draw {
		return redisstore.Draw{Nonce: rand.Text(), Incarnation: incarnation}
	}}.Patient())
	s.Ownership().Replace([]int{0})
	sub, _, err := s.CreateSubscription(ctx, subscription("s"))
	if err != nil {
		t.Fatal(err)
	}
	must[fsm.Outcome](t)(memstore.Link(ctx, s, sub, "/a", "0", "0"))
	wake := must[fsm.Observation](t)(s.Observe(ctx, 0, "/a", "1", false)).Deliveries[0]
	must[fsm.Outcome](t)(s.Park(ctx, wake.Ref(), fsm.BlockedPaused, time.Hour))
	for _, paused := range []bool{true, false} { // the visit to the consumer that follows is lost
		if _, err := s.ChangeSubscription(ctx, "s", func(now fsm.Subscription) (fsm.Subscription, error) {
			now.Paused = paused
			return now, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	waits := func(when string, want bool) {
		t.Helper()
		if err := s.SeeToLosses(ctx); err != nil {
			t.Error(err)
		}
		c, err := s.Consumer(ctx, wake.Ref().Consumer)
		if err != nil || c.Deadline.After(time.Now().Add(time.Minute)) != want {
			t.Errorf("%s, it waits until %s, %v", when, c.Deadline, err)
		}
	}
	waits("without a loss", true)
	incarnation = "two"
	must[fsm.Outcome](t)(memstore.Link(ctx, s, sub, "/b", "0", "1"))
	waits("after it", false)
	if left, err := rdb.HExists(ctx, "rv:{0}:meta", "unresumed").Result(); left || err != nil {
		t.Errorf("it is left to do: %t, %v", left, err)
	}
}
