package upstream

import (
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestHEADsShareConnections holds that HEADs go by as few connections as there are HEADs at a time, that one which
// upstream has closed costs nobody his answer, and that none is kept for long.
func TestHEADsShareConnections(t *testing.T) {
	const parallel = 8
	var together sync.WaitGroup
	var closes, hangs atomic.Bool
	srv := newScripted(t, func(int, int) (string, bool) {
		if hangs.Load() {
			return "", false
		}
		together.Done()
		together.Wait()
		return "HTTP/1.1 200 OK\r\nStream-Next-Offset: 1\r\nContent-Length: 5\r\n\r\n", closes.Load()
	})
	u, err := url.Parse("http://" + srv.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{URL: u, HeadTimeout: time.Second})
	heads := func(what string, want int32) {
		t.Helper()
		var wg sync.WaitGroup
		together.Add(parallel)
		for i := range parallel {
			wg.Go(func() {
				if info, err := c.Head(t.Context(), "/"+string(rune('a'+i))); err != nil || info.Tail != "1" {
					t.Errorf("%s: %+v, %v", what, info, err)
				}
			})
		}
		wg.Wait()
		if n := srv.connections.Load(); n != want {
			t.Errorf("%s: %d connections by now, want %d", what, n, want)
		}
	}
	heads("the first ones", parallel)
	heads("those after them", parallel)
	c.conns.drop(0)
	if n := len(c.conns.idle); n != 0 || c.conns.expiry != nil {
		t.Errorf("%d connections are kept that were idle for long, and the timer: %v", n, c.conns.expiry)
	}
	heads("those after a while", 2*parallel)
	hangs.Store(true)
	if _, err := c.HeadAnew(t.Context(), "/a"); err == nil || len(c.conns.idle) != 0 {
		t.Errorf("after a HEAD that failed (%v), %d connections are kept that may be as bad", err, len(c.conns.idle))
	}
	hangs.Store(false)
	heads("those after a failure", 3*parallel)
	closes.Store(true)
	heads("those whose answer ends their connection", 3*parallel)
	heads("those after upstream has closed", 4*parallel)
	c.Close()
	if n := len(c.conns.idle); n != 0 {
		t.Errorf("%d connections are kept by a client that was closed", n)
	}
}
