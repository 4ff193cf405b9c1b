package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"reveille/test/harness"
)

// worker is the function that Reveille wakes. It has one stream, so it handles one wake at a time.
type worker struct {
	streams string // the stream server
	secret  string // of the subscription
	say     *console
	enough  int // wakes after which the demo ends; 0 for never

	mu    sync.Mutex
	wakes int

	woken  chan struct{} // a wake came
	result chan error    // errEnough, or the fault that ends the demo
}

// watch ends the demo when the worker has had enough wakes, gets none for wakeWithin, or reports a fault.
func (w *worker) watch(ctx context.Context) error {
	patience := time.NewTimer(wakeWithin)
	defer patience.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.result:
			return err
		case <-w.woken:
			patience.Reset(wakeWithin)
		case <-patience.C:
			return fmt.Errorf("no wake within %s", wakeWithin)
		}
	}
}

func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.handle(r)
	if err == nil {
		w.wakes++
		if w.wakes == w.enough {
			err = errEnough
		}
	}
	if err != nil && r.Context().Err() == nil {
		select {
		case w.result <- err:
		default: // the demo is ending already
		}
	}
	select {
	case w.woken <- struct{}{}:
	default:
	}
	rw.WriteHeader(http.StatusNoContent)
}

// handle does what every worker does: verify, claim, read, process, ack, done.
func (w *worker) handle(r *http.Request) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return err
	}
	if err := harness.VerifySignature(w.secret, r.Header.Get("Webhook-Signature"), body, time.Now()); err != nil {
		return fmt.Errorf("the worker got a wake and %w", err)
	}
	var wake harness.Payload
	if err := json.Unmarshal(body, &wake); err != nil {
		return fmt.Errorf("the worker got a wake that is not JSON: %w", err)
	}
	w.say.line("reveille", "→ worker: wake up, there is something in %s", strings.Join(wake.TriggeredBy, ", "))
	w.say.line("worker", "woken: epoch %d, wake %s, signature ok", wake.Epoch, wake.WakeID)

	streams, err := callback(r.Context(), wake, harness.Callback{Epoch: wake.Epoch, WakeID: wake.WakeID})
	if err != nil {
		return err
	}
	w.say.line("worker", "claimed the wake")
	var acks []harness.StreamOffset
	for _, s := range streams {
		messages, next, err := read(r.Context(), w.streams+s.Path, s.Offset)
		if err != nil {
			return err
		}
		w.say.line("worker", "read %s from the stream server, up to offset %s", events(messages), next)
		acks = append(acks, harness.StreamOffset{Path: s.Path, Offset: next})
	}
	if _, err := callback(r.Context(), wake, harness.Callback{Epoch: wake.Epoch, Acks: acks, Done: true}); err != nil {
		return err
	}
	w.say.line("worker", "acknowledged that offset and said done; asleep until the next event")
	return nil
}

func events(messages []json.RawMessage) string {
	texts := make([]string, len(messages))
	for i, m := range messages {
		texts[i] = string(m)
	}
	switch len(texts) {
	case 0:
		return "no event"
	case 1:
		return "1 event " + texts[0]
	default:
		return fmt.Sprintf("%d events %s", len(texts), strings.Join(texts, " "))
	}
}
