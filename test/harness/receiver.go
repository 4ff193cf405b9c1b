package harness

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Push is one request that a Receiver got.
type Push struct {
	// ID is the ID of the delivery, Stream the stream of its events.
	ID, Stream string
	Header     http.Header
	Body       []byte
	At         time.Time
	// Status is the status of the answer.
	Status int
}

// Events returns the ids and the events of the request, each event as it stood there.
func (p Push) Events() (ids []string, events []string, err error) {
	events = []string{string(p.Body)}
	if strings.HasPrefix(string(p.Body), "[") {
		var list []json.RawMessage
		if err := json.Unmarshal(p.Body, &list); err != nil {
			return nil, nil, err
		}
		events = events[:0]
		for _, e := range list {
			events = append(events, string(e))
		}
	}
	base, numbers, ok := cutLast(p.ID, "_")
	first, _, _ := strings.Cut(numbers, "-")
	n, err := strconv.Atoi(first)
	if !ok || err != nil {
		return nil, nil, fmt.Errorf("the id of the delivery is %q", p.ID)
	}
	for i := range events {
		ids = append(ids, fmt.Sprintf("%s_%d", base, n+i))
	}
	return ids, events, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Receiver is a webhook endpoint that events are pushed to. It records the requests and answers them as the test says.
type Receiver struct {
	URL string

	t      testing.TB
	server *httptest.Server

	mu     sync.Mutex
	answer func(n int, p Push) int
	pause  time.Duration
	pushes []Push
}

// NewReceiver starts a receiver that answers 204 until Answer changes that.
func NewReceiver(t testing.TB) *Receiver {
	r := &Receiver{t: t, answer: func(int, Push) int { return http.StatusNoContent }}
	r.server = httptest.NewServer(http.HandlerFunc(r.serve))
	r.URL = r.server.URL
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

// Answer sets the statuses of the answers from now on. n counts the requests from 1.
func (r *Receiver) Answer(status func(n int, p Push) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = status
}

// AskForPause makes the answers 429 and 503 ask for a pause, in whole seconds, from now on.
func (r *Receiver) AskForPause(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause = d
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodOptions { // a request for consent, which it does not know
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // Reveille died on the way: some tests kill it
	}
	p := Push{
		ID: req.Header.Get("Webhook-Id"), Stream: req.Header.Get("Reveille-Stream"), Header: req.Header, Body: body,
		At: time.Now(),
	}
	r.mu.Lock()
	n := len(r.pushes)
	r.pushes = append(r.pushes, p)
	answer := r.answer
	r.mu.Unlock()
	status := answer(n+1, p)
	r.mu.Lock()
	r.pushes[n].Status = status
	if r.pause > 0 && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
		w.Header().Set("Retry-After", strconv.Itoa(int(r.pause/time.Second)))
	}
	r.mu.Unlock()
	w.WriteHeader(status)
}

// Pushes returns the requests so far that were answered, in the order of their arrival.
func (r *Receiver) Pushes() []Push {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.pushes), func(p Push) bool { return p.Status == 0 })
}

// Taken returns the events of a stream that were answered with a 2xx, in the order of their arrival.
func (r *Receiver) Taken(stream string) (ids, events []string) {
	r.t.Helper()
	for _, p := range r.Pushes() {
		if p.Stream != stream || p.Status > 299 {
			continue
		}
		i, e, err := p.Events()
		if err != nil {
			r.t.Fatal(err)
		}
		ids, events = append(ids, i...), append(events, e...)
	}
	return ids, events
}

// Await waits until n events of a stream were taken, and returns them. It fails the test if no further event comes for
// Wait.
func (r *Receiver) Await(stream string, n int) (ids, events []string) {
	r.t.Helper()
	Progress(r.t, fmt.Sprintf("%d events of %s are taken", n, stream), func() (int, error) {
		ids, events = r.Taken(stream)
		return max(0, n-len(events)), nil
	})
	return ids, events
}
