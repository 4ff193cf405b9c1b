package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

func TestTwoReplicasOnOneRedis(t *testing.T) {
	t.Parallel()
	// The wake of a replica that is killed is made up for once its waking timeout is over.
	waking := map[string]string{"REVEILLE_WAKING_TIMEOUT": "1s"}
	e := start(t, options{settings: waking})
	second := harness.StartReveille(t, e.settings(waking))
	other := harness.NewClient(t, second.URL)
	root := "/" + name(t)

	t.Run("a subscription made at one is acted on by the other", func(t *testing.T) {
		f := e.subscriber(root + "/one/*")
		other.Create(root + "/one/a")
		f.wake(root+"/one/a", 1)
		if _, found := other.Subscription(f.sub.ID); !found {
			t.Error("the other does not show it")
		}
	})

	t.Run("a subscription deleted at one is acted on by the other", func(t *testing.T) {
		f := e.subscriber(root + "/two/*")
		other.Create(root + "/two/a")
		w := f.wake(root+"/two/a", 1)
		e.gateway.DeleteSubscription(root+"/two/*", f.sub.ID)
		a := other.RawCallback(second.URL+"/callback/"+w.ConsumerID, w.Token, fmt.Sprintf(`{"epoch":%d}`, w.Epoch))
		if a.Status != http.StatusGone {
			t.Errorf("callback at the other: %d %s, want 410", a.Status, a.Body)
		}
		harness.Eventually(t, soon, "the other does not show it", harness.True(func() bool {
			_, found := other.Subscription(f.sub.ID)
			return !found
		}, "it does"))
	})

	t.Run("a wake of one can be answered at the other", func(t *testing.T) {
		f := e.liveSubscriber(root + "/three/*")
		tail := e.gateway.Create(root + "/three/a")
		w := f.wake(root+"/three/a", 1)
		done := fmt.Sprintf(`{"epoch":%d,"wake_id":%q,"acks":[{"path":%q,"offset":%q}],"done":true}`, w.Epoch, w.WakeID,
			root+"/three/a", tail)
		for n, origin := range []string{second.URL, e.rev.URL, second.URL} {
			if a := other.RawCallback(origin+"/callback/"+w.ConsumerID, w.Token, done); a.Status != http.StatusOK {
				t.Errorf("callback %d: %d %s", n, a.Status, a.Body)
			}
		}
		f.awaitIdle(root+"/three/a", tail)
		f.wakesOnAppendUnanswered(root + "/three/a")
	})

	t.Run("events through both and behind their backs: none is lost, and epochs strictly increase", func(t *testing.T) {
		f := e.subscriber(root + "/four/*")
		paths := []string{root + "/four/a", root + "/four/b", root + "/four/c"}
		for n, path := range paths {
			[]*harness.Client{e.gateway, other}[n%2].Create(path)
		}
		for n := range 30 {
			for _, path := range paths {
				[]*harness.Client{e.gateway, other, e.streams}[n%3].Append(path, fmt.Sprintf(`{"n":%d}`, n))
			}
		}
		for _, path := range paths {
			f.awaitIdle(path, e.streams.Tail(path))
			assertEpochs(t, f, path)
		}
	})

	t.Run("one is killed: the other goes on, with the wake that was in flight too", func(t *testing.T) {
		f := e.liveSubscriber(root + "/five/*")
		f.worker.Answer(func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) { <-r.Context().Done() })
		path := root + "/five/a"
		other.Create(path)
		w := f.wake(path, 1)
		second.Kill()
		f.worker.AnswerDone()
		e.streams.Append(path, `{"while":"one is dead"}`)
		harness.Eventually(t, soon, "the consumer is idle at the tail", func() error {
			c, err := f.consumerOf(path)
			if err == nil && (c.State != fsm.Idle || string(c.Links[path].Acked) != e.streams.Tail(path)) {
				err = fmt.Errorf("it is %s with %+v", c.State, c.Links)
			}
			return err
		})
		if again := f.wakes(path)[1]; again.WakeID != w.WakeID || again.Epoch != w.Epoch {
			t.Errorf("delivered again as %s, want %s", again, w)
		}
		f.awaitIdle(path, e.streams.Append(path, `{"after":"the death"}`))
		assertEpochs(t, f, path)
	})

	t.Run("one that was killed is lost, and one that is stopped has left", func(t *testing.T) {
		third := harness.StartReveille(t, e.settings(waking))
		said := func(what, field string, r *harness.Reveille) error {
			host := strings.TrimPrefix(r.URL, "http://")
			for line := range strings.Lines(e.rev.Log()) {
				_, after, found := strings.Cut(line, `"`+field+`":`)
				list, _, _ := strings.Cut(after, "]")
				if found && strings.Contains(line, what) && strings.Contains(list, host) {
					return nil
				}
			}
			return fmt.Errorf("of %s there is no line %q with %s", host, what, field)
		}
		harness.Eventually(t, soon, "the third is heard of", func() error {
			return said("replica set changed", "joined", third)
		})
		if err := third.Stop(); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, soon, "it says so", func() error {
			return errors.Join(
				said("a replica was lost", "replica", second), said("replica set changed", "left", third),
			)
		})
		e.awaitMetrics(t, map[string]float64{"reveille_replicas_lost_total": 1})
		for _, wrong := range []error{
			said("a replica was lost", "replica", third), said("replica set changed", "left", second),
		} {
			if wrong == nil {
				t.Error("it takes the one for the other")
			}
		}
	})
}

// assertEpochs fails the test unless each new epoch is higher than the ones before and has a wake ID of its own.
func assertEpochs(t *testing.T, f *fixture, path string) {
	t.Helper()
	var last harness.Wake
	ids := map[string]int64{}
	for _, w := range f.wakes(path) {
		if epoch, used := ids[w.WakeID]; used && epoch != w.Epoch {
			t.Errorf("wake ID %s was used for the epochs %d and %d", w.WakeID, epoch, w.Epoch)
		}
		if w.Epoch < last.Epoch || w.Epoch == last.Epoch && w.WakeID != last.WakeID {
			t.Errorf("%s came after %s", w, last)
		}
		ids[w.WakeID], last = w.Epoch, w
	}
}
