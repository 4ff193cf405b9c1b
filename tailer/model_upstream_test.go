package tailer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// modelUpstream is a stream server in memory whose answers a history delays, falsifies or loses. Time is the bubble's.
type modelUpstream struct {
	mu      sync.Mutex
	streams map[string]*modelStream
	// incarnations counts the streams of a name.
	incarnations map[string]int
	// headDelay is how long a HEAD takes; early says that it tells of the moment it came and not of the one it is
	// answered.
	headDelay time.Duration
	early     bool
	// lies answers 404 for everything, down 503; mute answers nothing.
	lies, down, mute bool
	// registry says that there is a registry stream, which tells of everything later by lag; notices are all of that.
	registry bool
	lag      time.Duration
	notices  []*modelNotice
	// restarts counts those of the server, which keeps everything in memory.
	restarts int

	conns  chan net.Conn
	server *http.Server
	over   chan struct{}
	closed chan struct{}
}

type modelStream struct {
	incarnation int
	made        time.Time
	events      []string
	closed      bool
	changed     chan struct{}
}

// modelHold is how long a live request may stay open.
const modelHold = 20 * time.Second

func newModelUpstream(registry bool) *modelUpstream {
	u := &modelUpstream{
		streams: map[string]*modelStream{}, incarnations: map[string]int{}, conns: make(chan net.Conn),
		over: make(chan struct{}), closed: make(chan struct{}), registry: registry,
	}
	if registry {
		u.streams[registryPath] = &modelStream{incarnation: 1, changed: make(chan struct{})}
	}
	u.server = &http.Server{Handler: u, ReadHeaderTimeout: time.Hour}
	go func() {
		defer close(u.over)
		_ = u.server.Serve(u) // ends with Close
	}()
	return u
}

func (u *modelUpstream) stop() {
	_ = u.server.Close()
	<-u.over
}

// Accept, Close and Addr are net.Listener's.
func (u *modelUpstream) Accept() (net.Conn, error) {
	select {
	case c := <-u.conns:
		return c, nil
	case <-u.closed:
		return nil, net.ErrClosed
	}
}

func (u *modelUpstream) Close() error {
	close(u.closed)
	return nil
}

func (u *modelUpstream) Addr() net.Addr { return &net.UnixAddr{Name: "model"} }

// dial is an upstream.Dial.
func (u *modelUpstream) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case u.conns <- server:
		return client, nil
	case <-u.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var _ upstream.Dial = (*modelUpstream)(nil).dial

func (s *modelStream) tail() fsm.Offset { return offsetOf(len(s.events)) }

func (s *modelStream) append(events ...string) {
	s.events = append(s.events, events...)
	close(s.changed)
	s.changed = make(chan struct{})
}

// land makes events land, one unless more are given; it returns the offset after them.
func (u *modelUpstream) land(path string, create bool, events ...string) (at fsm.Offset, incarnation int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.streams[path]
	switch {
	case u.down:
		return "", 0, errors.New("503")
	case s == nil && !create:
		return "", 0, errors.New("404")
	case s != nil && s.closed:
		return "", 0, errors.New("409")
	case s == nil:
		u.incarnations[path]++
		s = &modelStream{incarnation: u.incarnations[path], made: time.Now(), changed: make(chan struct{})}
		u.streams[path] = s
		u.notice("insert", path)
	}
	s.append(events...)
	return s.tail(), s.incarnation, nil
}

// shut closes a stream, and has another one take its place, if there is one that is closed and events are given. The
// incarnation is 0 if nothing was done.
func (u *modelUpstream) shut(path string, events ...string) (incarnation int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.streams[path]
	switch {
	case s == nil:
		return 0
	case len(events) == 0:
		s.closed = true
		s.append()
		return s.incarnation
	case !s.closed:
		return 0
	}
	u.incarnations[path]++
	anew := &modelStream{
		incarnation: u.incarnations[path], made: time.Now(), changed: make(chan struct{}), events: events,
	}
	close(s.changed)
	u.streams[path] = anew
	u.notice("delete", path)
	u.notice("insert", path)
	return anew.incarnation
}

// length is how many events a stream has.
func (u *modelUpstream) length(path string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s := u.streams[path]; s != nil {
		return len(s.events)
	}
	return 0
}

// expire ends a stream, if it is there, as its time to live does: nobody is told.
func (u *modelUpstream) expire(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s := u.streams[path]; s != nil {
		close(s.changed)
		delete(u.streams, path)
	}
}

// remove deletes a stream, and says whether it was there.
func (u *modelUpstream) remove(path string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.streams[path]
	if s == nil {
		return false
	}
	close(s.changed)
	delete(u.streams, path)
	u.notice("delete", path)
	return true
}

// restart ends all streams, the registry's with what it has not told yet, and begins with none.
func (u *modelUpstream) restart() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.streams {
		close(s.changed)
	}
	clear(u.streams)
	u.restarts++
	u.notices = nil
	u.streams[registryPath] = &modelStream{incarnation: u.restarts + 1, changed: make(chan struct{})}
}

// age is how long a stream has been there; 0 if there is none.
func (u *modelUpstream) age(path string) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s := u.streams[path]; s != nil {
		return time.Since(s.made)
	}
	return 0
}

// there returns the incarnation of a stream, 0 if there is none.
func (u *modelUpstream) there(path string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s := u.streams[path]; s != nil {
		return s.incarnation
	}
	return 0
}

func (u *modelUpstream) set(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f()
}

func (u *modelUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	delay, early := u.headDelay, u.early
	u.mu.Unlock()
	if r.Method != http.MethodHead {
		u.read(w, r)
		return
	}
	answer := u.describe(r.URL.EscapedPath())
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
	}
	if !early {
		answer = u.describe(r.URL.EscapedPath())
	}
	answer(w, r)
}

// describe returns what a HEAD is answered now.
func (u *modelUpstream) describe(path string) func(http.ResponseWriter, *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.streams[path]
	status, tail, closed := http.StatusOK, fsm.Offset(""), false
	switch {
	case u.mute:
		return func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	case u.down:
		status = http.StatusServiceUnavailable
	case u.lies, s == nil:
		status = http.StatusNotFound
	default:
		tail, closed = s.tail(), s.closed
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		if closed {
			w.Header().Set(upstream.HeaderClosed, "true")
		}
		if tail != "" {
			w.Header().Set(upstream.HeaderNextOffset, string(tail))
		}
		w.WriteHeader(status)
	}
}

// read answers a GET: at once if there is something, or when something comes.
func (u *modelUpstream) read(w http.ResponseWriter, r *http.Request) {
	path, from := r.URL.EscapedPath(), fsm.Offset(r.URL.Query().Get("offset"))
	over := time.NewTimer(modelHold)
	defer over.Stop()
	u.mu.Lock()
	restarts := u.restarts
	u.mu.Unlock()
	for last := r.URL.Query().Get("live") == ""; ; {
		u.mu.Lock()
		if u.restarts != restarts {
			u.mu.Unlock()
			panic(http.ErrAbortHandler)
		}
		s, odd := u.streams[path], u.lies || u.down || u.mute
		if s == nil || odd {
			u.mu.Unlock()
			u.describe(path)(w, r)
			return
		}
		tail, changed, closed := s.tail(), s.changed, s.closed
		var events []string
		for i, e := range s.events {
			if offsetOf(i + 1).After(from) {
				events = append(events, e)
			}
		}
		u.mu.Unlock()
		if len(events) > 0 || last || closed {
			if closed {
				w.Header().Set(upstream.HeaderClosed, "true")
			}
			w.Header().Set(upstream.HeaderUpToDate, "true")
			w.Header().Set(upstream.HeaderNextOffset, string(tail))
			if len(events) == 0 {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			_, _ = fmt.Fprintf(w, "[%s]", strings.Join(events, ","))
			return
		}
		select {
		case <-changed:
		case <-over.C:
			last = true
		case <-r.Context().Done():
			return
		}
	}
}
