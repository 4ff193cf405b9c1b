package e2e

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"reveille/test/harness"
)

// deliveryGrace is how long the program gives deliveries in flight once it was told to stop.
const deliveryGrace = 15 * time.Second

func TestSIGTERM(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
	// Where the test and the program together are slower than the grace, the delivery is cut, as it should be.
	for !stopsWithin(t, e, deliveryGrace) {
		e.rev.Start()
	}
}

// stopsWithin has the program stop with a delivery in flight. It returns false if that took longer than the delivery
// has, which tells nothing.
func stopsWithin(t *testing.T, e *env, grace time.Duration) bool {
	path := "/" + name(t) + "/a"
	f := e.liveSubscriber(path)
	release := make(gate)
	f.worker.Answer(func(w http.ResponseWriter, r *http.Request, _ harness.Wake) {
		release.wait(r)
		answerDone(w)
	})
	at := e.gateway.Create(path)
	w := f.wake(path, 1)

	began := time.Now()
	e.rev.Signal(syscall.SIGTERM)
	harness.Eventually(t, soon, "it says that it is not ready any more", func() error {
		select {
		case <-e.rev.Done():
			return nil
		default:
			return get(e.rev.Operator+"/readyz", 503, "stopping")
		}
	})
	// While it stops, workers can still call back, and their deliveries are not cut.
	a, err := e.gateway.Try(t.Context(), http.MethodPost, strings.TrimPrefix(w.Callback, e.rev.URL),
		jsonOf(t, w.Claim(false)), "Content-Type", "application/json", "Authorization", "Bearer "+w.Token)
	close(release)
	select {
	case <-e.rev.Done():
	case <-time.After(soon):
		t.Fatal("it runs")
	}
	if took := time.Since(began); took >= grace {
		t.Logf("it took %s until it had stopped: once more", took)
		return false
	}
	if err := e.rev.Err(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if err != nil || a.Status != http.StatusOK {
		t.Errorf("callback while it stops: %d %s %v", a.Status, a.Body, err)
	}
	f.awaitIdle(path, at) // the result of the delivery was kept

	e.streams.Append(path, `{"while":"down"}`)
	e.rev.Start()
	next := f.wake(path, 2)
	if next.Epoch != w.Epoch+1 || next.Offset(path) != at {
		t.Errorf("started again: woken for epoch %d at %s, want %d at %s", next.Epoch, next.Offset(path), w.Epoch+1, at)
	}
	f.wakesOnAppend(path, e.streams.Tail(path))
	if n := len(f.wakes(path)); n != 3 {
		t.Errorf("%d wakes, want 3", n)
	}
	return true
}

func TestSIGTERMEndsADeliveryThatHasNoEnd(t *testing.T) {
	harness.Long(t) // the dispatcher's tests hold that what is in flight is cut after the grace
	t.Parallel()
	e := start(t, options{settings: brief})
	path := "/" + name(t) + "/a"
	f := e.liveSubscriber(path)
	f.worker.Answer(func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) { <-r.Context().Done() })
	e.gateway.Create(path)
	w := f.wake(path, 1)
	// A read through the gateway that waits for events has no end of its own either.
	go func() { _, _ = e.gateway.Try(t.Context(), http.MethodGet, path+"?offset=now&live=sse", "") }()
	if err := e.rev.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	f.worker.AnswerDone()
	n := len(f.wakes(path))
	e.rev.Start()
	if again := f.wake(path, n+1); again.WakeID != w.WakeID || again.Epoch != w.Epoch {
		t.Errorf("started again it delivers %s, want %s", again, w)
	}
	f.awaitIdle(path, e.streams.Append(path, `{"after":"the restart"}`))
}

func TestKillInTheMiddleOfADelivery(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: brief})
	path := "/" + name(t) + "/a"
	f := e.liveSubscriber(path)
	f.worker.Answer(func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) { <-r.Context().Done() })
	e.gateway.Create(path)
	w := f.wake(path, 1)
	e.rev.Kill()
	e.streams.Append(path, `{"while":"dead"}`)
	f.worker.AnswerDone()
	n := len(f.wakes(path))
	e.rev.Start()
	again := f.wake(path, n+1)
	if again.WakeID != w.WakeID || again.Epoch != w.Epoch {
		t.Errorf("delivered again as %s, want %s", again, w)
	}
	if again.Offset(path) != w.Offset(path) {
		t.Errorf("delivered again at %s, want %s", again.Offset(path), w.Offset(path))
	}
	f.awaitIdle(path, e.streams.Tail(path))
	f.awaitIdle(path, e.streams.Append(path, `{"after":"the restart"}`))
}
