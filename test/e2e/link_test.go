package e2e

import (
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"reveille/test/harness"
)

// link is the network between Reveille and the stream server: it passes bytes on and fails in the ways of networks, of
// which neither side is told.
type link struct {
	// URL is what Reveille takes for the stream root.
	URL string

	t      *testing.T
	target string
	ln     net.Listener
	wg     sync.WaitGroup

	mu sync.Mutex
	// changed is closed when any of what follows changes.
	changed chan struct{}
	cables  map[*cable]struct{}
	// lost is true while nothing passes and nothing is said, drip the time that each byte of an answer takes.
	lost   bool
	drip   time.Duration
	closed bool
	// met is how many messages have met with what is wrong.
	met int
}

// cable is one connection through a link.
type cable struct {
	client, server net.Conn
	// cut is true if nothing will ever pass again.
	cut bool
}

func newLink(t *testing.T, root string) *link {
	t.Helper()
	u, err := url.Parse(root)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	l := &link{t: t, target: u.Host, ln: ln, changed: make(chan struct{}), cables: map[*cable]struct{}{}}
	u.Host = ln.Addr().String()
	l.URL = u.String()
	l.wg.Go(l.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		l.set(func() {
			l.closed = true
			for c := range l.cables {
				_, _ = c.client.Close(), c.server.Close()
			}
		})
		l.wg.Wait()
	})
	return l
}

// behindLink starts an env with a link to its stream server.
func behindLink(t *testing.T, o options) (*env, *link) {
	t.Helper()
	var l *link
	o.upstream = func(url string) string { l = newLink(t, url); return l.URL }
	return start(t, o), l
}

func (l *link) accept() {
	for {
		client, err := l.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		c := &cable{client: client, server: server}
		l.set(func() {
			if l.closed {
				_, _ = client.Close(), server.Close()
			}
			l.cables[c] = struct{}{}
		})
		both := sync.WaitGroup{}
		both.Go(func() { l.pass(c, server, client, false) })
		both.Go(func() { l.pass(c, client, server, true) })
		l.wg.Go(func() {
			both.Wait()
			_, _ = client.Close(), server.Close()
			l.set(func() { delete(l.cables, c) })
		})
	}
}

// pass copies one direction.
func (l *link) pass(c *cable, to, from net.Conn, answers bool) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		for sent := 0; sent < n; {
			drip, ok := l.wait(c)
			if !ok {
				return
			}
			end := n
			if drip > 0 && answers {
				if sent == 0 {
					l.meet()
				}
				time.Sleep(drip) // the pace of the network
				end = sent + 1
			}
			if _, err := to.Write(buf[sent:end]); err != nil {
				_ = from.Close()
				return
			}
			sent = end
		}
		if err != nil {
			if _, ok := l.wait(c); ok || !answers {
				_ = to.Close() // the end is passed on too, unless it is lost
			}
			return
		}
	}
}

// wait waits until something may pass; ok is false if nothing ever will.
func (l *link) wait(c *cable) (drip time.Duration, ok bool) {
	for {
		l.mu.Lock()
		closed, cut, lost, drip, changed := l.closed, c.cut, l.lost, l.drip, l.changed
		l.mu.Unlock()
		switch {
		case closed, cut:
			return 0, false
		case !lost:
			return drip, true
		}
		l.meet()
		<-changed
	}
}

func (l *link) meet() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.met++
}

// untilMet waits until as many messages have met with what is wrong since it went wrong.
func (l *link) untilMet(n int) {
	l.t.Helper()
	harness.Eventually(l.t, soon, "the fault is met with", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.met < n {
			return fmt.Errorf("%d times", l.met)
		}
		return nil
	})
}

func (l *link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// lose loses everything, and slow lets answers trickle, until mend.
func (l *link) lose()                { l.set(func() { l.lost, l.met = true, 0 }) }
func (l *link) slow(d time.Duration) { l.set(func() { l.drip, l.met = d, 0 }) }
func (l *link) mend()                { l.set(func() { l.lost, l.drip = false, 0 }) }

// halfOpen has the server's side of all connections vanish without a word to the other.
func (l *link) halfOpen() {
	l.set(func() {
		for c := range l.cables {
			c.cut = true
			_ = c.server.Close()
		}
	})
}

// open is how many connections there are.
func (l *link) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.cables)
}
