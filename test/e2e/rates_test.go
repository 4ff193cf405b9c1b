package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestOneRateOverReplicasOutlivesOne has many streams wait for the rate of their endpoint at two replicas, and kills
// one of them. The other delivers all, no faster than the rate. Meanwhile what waits is shown.
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
	harness.Eventually(t, soon, "one that waits is shown", func() error {
		for path := range tails {
			if c, err := w.consumerOf(path); err == nil && c.Held == fsm.BlockedRate {
				_, out, _ := f.replicas[0].Ask("", "consumer", w.sub.ID, path)
				if strings.Contains(out, fsm.BlockedRate.Rule().Says) {
					return nil
				}
			}
		}
		return errors.New("none")
	})
	f.replicas[1].Kill()
	for path, tail := range tails {
		w.awaitIdle(path, tail)
	}
	n := len(w.worker.Wakes())
	if least := time.Duration(n-limit.Burst()) * limit.Interval(); time.Since(began) < least {
		t.Errorf("%d wakes came within %s, which is less than %s", n, time.Since(began), least)
	}
}
