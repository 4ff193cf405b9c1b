package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestOneRateOverReplicasOutlivesOne has many streams wait for the rate of their endpoint at two replicas, and kills
// one of them. The other delivers all, no faster than the rate.
func TestOneRateOverReplicasOutlivesOne(t *testing.T) {
	t.Parallel()
	const streams = 15
	limit := fsm.Limit{Rate: 60}
	f := startFleet(t, 2, map[string]string{"REVEILLE_MAX_RATE": fmt.Sprint(limit.Rate)})
	f.share(0, 1)
	w := f.liveSubscriber("/rated/*")
	w.worker.AnswerDone()
	began := time.Now()
	tails := map[string]string{}
	for i := range streams {
		path := fmt.Sprintf("/rated/%d", i)
		tails[path] = f.gateways[i%2].Create(path)
	}
	f.replicas[1].Kill()
	for path, tail := range tails {
		w.awaitIdle(path, tail)
	}
	n := len(w.worker.Wakes())
	if least := time.Duration(n-limit.Burst()) * limit.Interval(); time.Since(began) < least {
		t.Errorf("%d wakes came within %s, which is less than %s", n, time.Since(began), least)
	}
}

// TestWhatWaitsForARateIsShown has an endpoint that takes one wake a minute, so that the second one waits for long.
func TestWhatWaitsForARateIsShown(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	worker := harness.NewWorker(t)
	worker.AnswerDone()
	res := e.gateway.PutSubscription("/slow/*", "slow", fmt.Sprintf(`{"webhook":%q,"rate":1}`, worker.URL))
	if res.Status != http.StatusCreated {
		t.Fatalf("%d %s", res.Status, res.Body)
	}
	var sub harness.Subscription
	res.Decode(t, &sub)
	worker.Trust("slow", sub.Secret)
	for i := range 3 {
		e.gateway.Create(fmt.Sprintf("/slow/%d", i))
	}
	harness.Eventually(t, soon, "one that waits is shown", func() error {
		for i := range 3 {
			_, out, _ := e.rev.Ask("", "consumer", "slow", fmt.Sprintf("/slow/%d", i))
			if strings.Contains(out, fsm.BlockedRate.Rule().Says) {
				return nil
			}
		}
		return errors.New("none")
	})
}
