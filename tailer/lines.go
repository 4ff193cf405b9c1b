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
	// expiry is when the first of them has waited for too long.
	expiry *time.Timer
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

// give takes a line back.
func (ls *lines) give(l *line) {
	if l.conn == nil {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.idle = append(ls.idle, idleLine{l, time.Now()})
	if len(ls.idle) > linesKept {
		ls.drop(1)
	}
	if ls.expiry == nil {
		ls.expiry = time.AfterFunc(lineIdle, ls.expire)
	}
}

// expire hangs those up that were not needed for long.
func (ls *lines) expire() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	old := 0
	for old < len(ls.idle) && time.Since(ls.idle[old].since) >= lineIdle {
		old++
	}
	ls.drop(old)
	ls.expiry = nil
	if len(ls.idle) > 0 {
		ls.expiry = time.AfterFunc(lineIdle-time.Since(ls.idle[0].since), ls.expire)
	}
}

// drop hangs up those that have waited longest. ls.mu is held.
func (ls *lines) drop(n int) {
	for _, l := range ls.idle[:n] {
		l.hangUp()
	}
	ls.idle = slices.Delete(ls.idle, 0, n)
}

// close hangs up those that wait.
func (ls *lines) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.drop(len(ls.idle))
	if ls.expiry != nil {
		ls.expiry.Stop()
		ls.expiry = nil
	}
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
