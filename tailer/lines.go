package tailer

import (
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// linesKept is how many lines wait at most for the next request, lineIdle for how long.
	linesKept, lineIdle = roomMax, 30 * time.Second
)

// lines are lines that several share, for requests that are answered at once.
type lines struct {
	tls *tls.Config

	mu sync.Mutex
	// idle are those that wait, the one that has waited for the shortest time last.
	idle []idleLine
}

type idleLine struct {
	*line
	since time.Time
}

// do is line.do on a line that is free.
func (ls *lines) do(req *http.Request) (*http.Response, error) {
	l := ls.take()
	res, err := l.do(req.Context(), req.Method, func() (*http.Request, error) { return req, nil })
	if err != nil {
		return nil, err
	}
	res.Request = req
	res.Body.(*lineBody).after = func() { ls.give(l) }
	return res, nil
}

func (ls *lines) take() *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	n := len(ls.idle)
	if n == 0 {
		return &line{tls: ls.tls}
	}
	l := ls.idle[n-1]
	ls.idle[n-1] = idleLine{}
	ls.idle = ls.idle[:n-1]
	return l.line
}

// give takes a line back, and hangs those up that were not needed for long.
func (ls *lines) give(l *line) {
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	old := 0
	for old < len(ls.idle) && (now.Sub(ls.idle[old].since) > lineIdle || len(ls.idle)-old >= linesKept) {
		ls.idle[old].hangUp()
		old++
	}
	ls.idle = slices.Delete(ls.idle, 0, old)
	if l.conn != nil {
		ls.idle = append(ls.idle, idleLine{l, now})
	}
}

// close hangs up those that wait.
func (ls *lines) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.idle {
		l.hangUp()
	}
	ls.idle = nil
}

// The protocols that upstream may speak.
const (
	protocolUnknown int32 = iota
	protocolHTTP1
	protocolHTTP2
)

// transport sends requests that are answered at once. It finds out by which protocol upstream answers; if that is HTTP/1.1 they go by
// lines.
type transport struct {
	shared   http.RoundTripper
	lines    lines
	protocol atomic.Int32
}

// RoundTrip is http.RoundTripper's.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.protocol.Load() == protocolHTTP1 {
		res, err := t.lines.do(req)
		if err != nil {
			t.protocol.Store(protocolUnknown) // it may be another server from now on
		}
		return res, err
	}
	res, err := t.shared.RoundTrip(req)
	if err == nil {
		t.protocol.Store(map[bool]int32{true: protocolHTTP2, false: protocolHTTP1}[res.ProtoMajor == 2])
	}
	return res, err
}

// CloseIdleConnections is for http.Client.
func (t *transport) CloseIdleConnections() {
	t.lines.close()
	if s, ok := t.shared.(interface{ CloseIdleConnections() }); ok {
		s.CloseIdleConnections()
	}
}

// http2 says whether upstream answers by HTTP/2, as far as is known.
func (t *transport) http2() bool { return t.protocol.Load() == protocolHTTP2 }
