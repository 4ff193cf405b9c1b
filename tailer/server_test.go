package tailer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// server is a small stream server that can be told to misbehave.
type server struct {
	*httptest.Server

	mu      sync.Mutex
	streams map[string]*stream
	heads   map[string]int
	gets    map[string]int
	waiting map[string]int
	// fault answers a request in the server's stead and returns true, or lets it pass.
	fault func(w http.ResponseWriter, r *http.Request) bool
	// deaf has the server miss appends for those who wait.
	deaf bool
	// setUp is called while a live request is set up: after the server has looked for events, and before the request
	// waits for others. What is appended then is missed.
	setUp func(path string)
	hold  time.Duration
	// bare leaves Stream-Next-Offset out of a 204.
	bare bool
}

type stream struct {
	events  []string
	base    int
	ttl     bool
	closed  bool
	changed chan struct{}
}

func newServer(t *testing.T) *server {
	u := &server{
		streams: map[string]*stream{}, heads: map[string]int{}, gets: map[string]int{}, waiting: map[string]int{},
		hold: 20 * time.Second,
	}
	u.Server = httptest.NewServer(u)
	t.Cleanup(func() {
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

func offsetOf(n int) fsm.Offset { return fsm.Offset(fmt.Sprintf("%016d_%016d", 0, n)) }

func (s *stream) tail() fsm.Offset { return offsetOf(s.base + len(s.events)) }

func (u *server) setFault(f func(w http.ResponseWriter, r *http.Request) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fault = f
}

func (u *server) set(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f()
}

func (u *server) create(path string, events ...string) fsm.Offset {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := &stream{events: events, changed: make(chan struct{})}
	u.streams[path] = s
	return s.tail()
}

func (u *server) change(path string, f func(*stream)) fsm.Offset {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.streams[path]
	f(s)
	if !u.deaf {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return s.tail()
}

func (u *server) append(path string, events ...string) fsm.Offset {
	return u.change(path, func(s *stream) { s.events = append(s.events, events...) })
}

func (u *server) remove(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s := u.streams[path]; s != nil {
		close(s.changed)
		delete(u.streams, path)
	}
}

func (u *server) count(m map[string]int, path string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return m[path]
}

// waiters is how many live requests wait now.
func (u *server) waiters(path string) int { return u.count(u.waiting, path) }

func (u *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	u.mu.Lock()
	if r.Method == http.MethodHead {
		u.heads[path]++
	} else {
		u.gets[path]++
	}
	fault := u.fault
	u.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	u.mu.Lock()
	s := u.streams[path]
	if s == nil {
		u.mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if r.Method == http.MethodHead {
		if s.ttl {
			w.Header().Set(upstream.HeaderTTL, "60")
		}
		u.describe(w, s)
		u.mu.Unlock()
		return
	}
	u.mu.Unlock()
	switch r.URL.Query().Get("live") {
	case "sse":
		u.serveSSE(w, r, path)
	default:
		u.servePoll(w, r, path)
	}
}

func (u *server) describe(w http.ResponseWriter, s *stream) {
	w.Header().Set(upstream.HeaderNextOffset, string(s.tail()))
	if s.closed {
		w.Header().Set(upstream.HeaderClosed, "true")
	}
}

// wait waits until something lies beyond from, the server's own time is over, or the stream is gone. It returns the
// events, and the stream as it was then: an answer with a later tail would lose the events between.
func (u *server) wait(r *http.Request, path string, from fsm.Offset) (events []string, then *stream) {
	timer := time.NewTimer(u.hold)
	defer timer.Stop()
	first := true
	for over := r.URL.Query().Get("live") == ""; ; {
		u.mu.Lock()
		s := u.streams[path]
		if s == nil || s.closed || s.tail().After(from) && (first || !u.deaf) || over || from.After(s.tail()) {
			if s != nil {
				for i := range s.events {
					if offsetOf(s.base + i + 1).After(from) {
						events = append(events, s.events[i])
					}
				}
				now := *s
				then = &now
			}
			u.mu.Unlock()
			return events, then
		}
		if setUp := u.setUp; first && setUp != nil {
			u.mu.Unlock()
			setUp(path)
			u.mu.Lock()
		}
		first = false
		changed := s.changed
		u.waiting[path]++
		u.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-r.Context().Done():
			over = true
		}
		u.mu.Lock()
		u.waiting[path]--
		u.mu.Unlock()
	}
}

func (u *server) servePoll(w http.ResponseWriter, r *http.Request, path string) {
	events, s := u.wait(r, path, fsm.Offset(r.URL.Query().Get("offset")))
	u.mu.Lock()
	defer u.mu.Unlock()
	if s == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set(upstream.HeaderUpToDate, "true")
	w.Header().Set(upstream.HeaderCursor, "c1")
	u.describe(w, s)
	if len(events) == 0 {
		if u.bare {
			w.Header().Del(upstream.HeaderNextOffset)
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_, _ = fmt.Fprintf(w, "[%s]", strings.Join(events, ","))
}

func (u *server) serveSSE(w http.ResponseWriter, r *http.Request, path string) {
	w.Header().Set("Content-Type", "text/event-stream")
	from := fsm.Offset(r.URL.Query().Get("offset"))
	for r.Context().Err() == nil {
		events, s := u.wait(r, path, from)
		u.mu.Lock()
		if s == nil {
			u.mu.Unlock()
			return
		}
		if len(events) > 0 {
			_, _ = fmt.Fprintf(w, "event: data\ndata: [%s]\n\n", strings.Join(events, ","))
		}
		from = s.tail()
		_, _ = fmt.Fprintf(w,
			"event: control\ndata: {\"streamNextOffset\":%q,\"streamCursor\":\"c\",\"upToDate\":true,"+
				"\"streamClosed\":%t}\n\n", from, s.closed)
		closed := s.closed
		u.mu.Unlock()
		w.(http.Flusher).Flush()
		if closed {
			return
		}
	}
}
