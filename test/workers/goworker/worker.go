package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// wake is the body of the webhook.
type wake struct {
	Type       string         `json:"type"` // of a test delivery
	ConsumerID string         `json:"consumer_id"`
	Epoch      int64          `json:"epoch"`
	WakeID     string         `json:"wake_id"`
	Streams    []streamOffset `json:"streams"`
	Callback   string         `json:"callback"`
	Token      string         `json:"token"`
}

type streamOffset struct {
	Path   string `json:"path"`
	Offset string `json:"offset"` // last processed, inclusive; "-1" if nothing was processed
}

type worker struct {
	secret    string
	streams   string
	keepAlive time.Duration
	stopping  context.Context
	work      sync.WaitGroup

	mu      sync.Mutex
	running map[string]run // by consumer
}

// run is what this process has under way for a consumer.
type run struct {
	epoch int64
	end   context.CancelFunc
}

func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, 16<<20))
	if err != nil {
		http.Error(rw, "the body cannot be read", http.StatusBadRequest)
		return
	}
	now := time.Now()
	if !isSigned(r.Header.Get("Webhook-Signature"), body, w.secret, now) &&
		!isSigned(r.Header.Get("Webhook-Signature-New"), body, w.secret, now) { // while the secret is rotated
		http.Error(rw, "bad signature", http.StatusUnauthorized)
		return
	}
	var wk wake
	if err := json.Unmarshal(body, &wk); err != nil {
		http.Error(rw, "not a wake", http.StatusBadRequest)
		return
	}
	if wk.Type == "webhook.test" { // an operator tries whether deliveries arrive
		rw.WriteHeader(http.StatusNoContent)
		return
	}
	w.start(wk, r.Header.Get("traceparent"))
	rw.WriteHeader(http.StatusAccepted)
}

// isSigned checks "t=<unix time>,sha256=<hex>": an HMAC of "<unix time>.<body>", not older than five minutes.
func isSigned(header string, body []byte, secret string, now time.Time) bool {
	stamp, sum, _ := strings.Cut(strings.TrimPrefix(header, "t="), ",sha256=")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	got, err := hex.DecodeString(sum)
	return err == nil && hmac.Equal(got, mac.Sum(nil)) // takes the same time for every signature
}

// start works on a wake, unless this process already does: a wake whose answer was lost comes again. A wake with a
// higher epoch ends the work on one with a lower epoch, whose callbacks would all be refused.
func (w *worker) start(wk wake, trace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was, busy := w.running[wk.ConsumerID]
	if busy && was.epoch >= wk.Epoch {
		return
	}
	if busy {
		was.end()
	}
	ctx, end := context.WithCancel(w.stopping)
	w.running[wk.ConsumerID] = run{wk.Epoch, end}
	w.work.Go(func() {
		defer end()
		if err := w.handle(ctx, wk, trace); err != nil {
			// After 45 s without a callback the consumer is woken again from the acknowledged offsets.
			log.Printf("%s, epoch %d: %v", wk.ConsumerID, wk.Epoch, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.running[wk.ConsumerID].epoch == wk.Epoch {
			delete(w.running, wk.ConsumerID)
		}
	})
}

// handle does what every worker does: claim, read, process, acknowledge, done.
func (w *worker) handle(ctx context.Context, wk wake, trace string) error {
	calls := &callbacks{wake: wk, token: wk.Token, trace: trace}
	// The first callback claims the wake. Its answer has the current offsets, which may be beyond those of the wake.
	streams, err := calls.send(callback{WakeID: wk.WakeID})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var alive sync.WaitGroup
	alive.Go(func() { stop(calls.keepAlive(ctx, w.keepAlive)) })
	for _, s := range streams {
		if err = w.processStream(ctx, calls, s.Path, s.Offset); err != nil {
			break
		}
	}
	stop(nil)
	alive.Wait()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errOver):
		return cause
	case err != nil && w.stopping.Err() == nil:
		return err
	}
	// If more has arrived, a worker is woken again at once. If this process must stop, that is another one.
	_, err = calls.send(callback{Done: true})
	return err
}

// processStream processes the messages of a stream beyond an offset, batch by batch, up to its tail.
func (w *worker) processStream(ctx context.Context, calls *callbacks, path, offset string) error {
	for {
		messages, next, more, err := w.read(ctx, path, offset)
		if err != nil {
			return err
		}
		for _, m := range messages {
			if err := process(ctx, path, m); err != nil {
				return err
			}
		}
		if next == offset {
			return nil
		}
		// Acknowledged messages are not processed again after a crash.
		if _, err := calls.send(callback{Acks: []streamOffset{{path, next}}}); err != nil || !more {
			return err
		}
		offset = next
	}
}

// read returns messages of a JSON stream beyond an offset, the offset of the last one, and whether there are more.
func (w *worker) read(ctx context.Context, path, offset string) (
	messages []json.RawMessage, next string, more bool, err error,
) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.streams+path+"?offset="+url.QueryEscape(offset), nil)
	if err != nil {
		return nil, "", false, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, "", false, err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		if res.StatusCode == http.StatusGone && offset != "-1" {
			// The server does not keep this offset any more: read on from what it still has.
			return w.read(ctx, path, "-1")
		}
		return nil, offset, false, nil // the stream is gone, or is not there yet
	default:
		return nil, "", false, fmt.Errorf("GET %s: %s", path, res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&messages); err != nil {
		return nil, "", false, fmt.Errorf("GET %s: %w", path, err)
	}
	if next = res.Header.Get("Stream-Next-Offset"); next == "" {
		next = offset
	}
	return messages, next, res.Header.Get("Stream-Up-To-Date") != "true", nil
}
