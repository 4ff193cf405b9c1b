package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// patch changes the subscription of a fixture through a client.
func (s *fixture) patch(through *harness.Client, patch string) {
	s.t.Helper()
	if a := through.Do(http.MethodPatch, "/**?subscription="+s.sub.ID, patch); a.Status != http.StatusOK {
		s.t.Fatalf("PATCH: %d %s", a.Status, a.Body)
	}
}

// moveTo has the wakes of a fixture go to another worker, with the same secret.
func (s *fixture) moveTo(through *harness.Client, w *harness.Worker) {
	s.t.Helper()
	w.Trust(s.sub.ID, s.sub.Secret)
	s.patch(through, jsonOf(s.t, map[string]string{"webhook": w.URL}))
}

func TestAChangedSubscription(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})

	t.Run("who works on a wake goes on, and is fenced by the next one, at the new webhook", func(t *testing.T) {
		s, wake := e.live(t)
		moved := harness.NewWorker(t)
		s.moveTo(s.gateway, moved)
		s.callback(wake, wake.Claim(false))
		s.callback(wake, wake.Claim(true, s.ack(s.tail)))
		before := s.tail
		s.append()
		next := moved.Wake(1)
		if next.Epoch <= wake.Epoch || next.Offset(s.path) != before {
			t.Errorf("the new webhook got %s from %s, want a later epoch than %d from %s", next, next.Offset(s.path),
				wake.Epoch, before)
		}
		s.refused(wake, wake.Claim(true), fsm.CodeStaleEpoch)
		if n := len(s.worker.Wakes()); n != 1 {
			t.Errorf("the old webhook got %d wakes", n)
		}
	})

	t.Run("a retry goes to the new webhook, with the same wake", func(t *testing.T) {
		s := e.idle(t)
		s.worker.AnswerStatus(http.StatusServiceUnavailable)
		s.append()
		failed := s.worker.Wake(1)
		moved := harness.NewWorker(t)
		s.moveTo(s.gateway, moved)
		if retry := moved.Wake(1); retry.WakeID != failed.WakeID || retry.Epoch != failed.Epoch {
			t.Errorf("the new webhook got %s, want %s", retry, failed)
		}
	})

	t.Run("a replica that has read the list delivers to the new webhook", func(t *testing.T) {
		e := start(t, options{})
		second := harness.StartReveille(t, e.settings(nil))
		other := harness.NewClient(t, second.URL)
		root := "/" + name(t)
		f := e.subscriber(root + "/*")
		moved := harness.NewWorker(t)
		moved.AnswerDone()
		f.moveTo(other, moved)
		// Whoever shows the subscription has read the list.
		if _, found := e.gateway.Subscription(f.sub.ID); !found {
			t.Fatal("the other replica does not show the subscription")
		}
		const streams = 8 // of partitions of both
		for n := range streams {
			e.streams.Create(fmt.Sprintf("%s/%d", root, n))
			e.gateway.Append(fmt.Sprintf("%s/%d", root, n), `{"n":1}`)
		}
		harness.Eventually(t, soon, "each stream has woken the new webhook", func() error {
			woken := map[string]bool{}
			for _, w := range moved.Wakes() {
				woken[w.PrimaryStream] = true
			}
			if len(woken) < streams {
				return fmt.Errorf("%d of %d have", len(woken), streams)
			}
			return nil
		})
		if n := len(f.worker.Wakes()); n > 0 {
			t.Errorf("the old webhook got %d wakes", n)
		}
	})
}
