package e2e

import (
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"

	"reveille/test/harness"
)

func TestSIGTERM(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_WAKING_TIMEOUT": "20s"}})
	root := "/" + name(t)
	f := e.liveSubscriber(root + "/*")
	release := make(chan struct{})
	f.worker.Answer(func(w http.ResponseWriter, _ *http.Request, _ harness.Wake) {
		<-release
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"done":true}`))
	})
	at := e.gateway.Create(root + "/a")
	w := f.wake(root+"/a", 1)

	began := time.Now()
	e.rev.Signal(syscall.SIGTERM)
	harness.Eventually(t, soon, "it says that it is not ready any more",
		func() error { return get(e.rev.Admin+"/readyz", 503, "stopping") })
	t.Run("while it stops, workers can still call back", func(t *testing.T) {
		if a := e.gateway.Callback(w, w.Claim(false)); a.Status != http.StatusOK {
			t.Errorf("callback: %d %s", a.Status, a.Body)
		}
	})
	t.Run("the delivery in flight is not cut", func(t *testing.T) {
		harness.Never(t, quiet, "it ends with a delivery in flight", func() error {
			select {
			case <-e.rev.Done():
				return nil
			default:
				return errors.New("it runs")
			}
		})
	})
	close(release)
	t.Run("it ends with status 0 within 30 s", func(t *testing.T) {
		select {
		case <-e.rev.Done():
		case <-time.After(30 * time.Second):
			t.Fatal("it runs")
		}
		if err := e.rev.Err(); err != nil {
			t.Errorf("it ended with %v after %s", err, time.Since(began))
		}
	})
	t.Run("the result of the delivery was kept", func(t *testing.T) { f.awaitIdle(root+"/a", at) })
	t.Run("nothing is lost when it is started again", func(t *testing.T) {
		e.streams.Append(root+"/a", `{"while":"down"}`)
		e.rev.Start()
		next := f.wake(root+"/a", 2)
		if next.Epoch != w.Epoch+1 || next.Offset(root+"/a") != at {
			t.Errorf("woken for epoch %d at %s, want %d at %s", next.Epoch, next.Offset(root+"/a"), w.Epoch+1, at)
		}
		f.wakesOnAppend(root+"/a", e.streams.Tail(root+"/a"))
		if n := len(f.wakes(root + "/a")); n != 3 {
			t.Errorf("%d wakes, want 3", n)
		}
	})
}

func TestSIGTERMEndsADeliveryThatHasNoEnd(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_WAKING_TIMEOUT": "2s"}})
	path := "/" + name(t) + "/a"
	f := e.liveSubscriber(path)
	f.worker.Answer(func(_ http.ResponseWriter, r *http.Request, _ harness.Wake) { <-r.Context().Done() })
	e.gateway.Create(path)
	w := f.wake(path, 1)
	// A read through the gateway that waits for events has no end of its own either.
	go func() { _, _ = e.gateway.Try(t.Context(), http.MethodGet, path+"?offset=now&live=sse", "") }()
	began := time.Now()
	if err := e.rev.Stop(); err != nil || time.Since(began) > 30*time.Second {
		t.Errorf("it ended with %v after %s", err, time.Since(began))
	}
	f.worker.AnswerDone()
	n := len(f.wakes(path))
	e.rev.Start()
	if again := f.wake(path, n+1); again.WakeID != w.WakeID || again.Epoch != w.Epoch {
		t.Errorf("started again it delivers %s, want %s", again, w)
	}
	f.wakesOnAppend(path, e.streams.Tail(path))
}

func TestKillInTheMiddleOfADelivery(t *testing.T) {
	t.Parallel()
	e := start(t, options{})
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
	at := e.streams.Tail(path)
	f.awaitIdle(path, at)
	f.wakesOnAppend(path, at)
}
