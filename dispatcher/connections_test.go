package dispatcher

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// pooled is a pool on injected time, whose connections lead nowhere.
type pooled struct {
	*pool
	t      *testing.T
	dialed int
}

// inPool runs a test on injected time.
func inPool(t *testing.T, most int, test func(p *pooled)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pooled{t: t}
		p.pool = newPool(most, time.Minute, func(poolKey) *http.Transport {
			return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				p.dialed++
				conn, peer := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, peer) }() // until it is closed
				return conn, nil
			}}
		})
		test(p)
		p.close()
		if p.open != 0 || len(p.sets) != 0 || p.used.Len() != 0 {
			t.Errorf("%d connections of %d sets are left", p.open, len(p.sets))
		}
	})
}

// dial opens a connection of a set.
func (p *pooled) dial(set *connections) net.Conn {
	p.t.Helper()
	conn, err := set.transport.DialContext(p.t.Context(), "tcp", "")
	if err != nil {
		p.t.Fatal(err)
	}
	return conn
}

func (p *pooled) wantOpen(want int, when string) {
	p.t.Helper()
	if p.open != want {
		p.t.Errorf("%s, %d connections are open, want %d", when, p.open, want)
	}
}

func host(n int) poolKey { return poolKey{scheme: "https", host: fmt.Sprintf("host-%d.test", n)} }

func TestConnectionsHaveAnAge(t *testing.T) {
	inPool(t, 10, func(p *pooled) {
		first := p.use(host(1))
		p.dial(first)
		first.release()
		time.Sleep(p.age / 2)
		if again := p.use(host(1)); again != first {
			t.Error("they are not used again")
		} else {
			time.Sleep(p.age / 2)
			second := p.use(host(1))
			if second == first {
				t.Error("they are used for longer than their age")
			}
			p.dial(second)
			second.release()
			p.wantOpen(2, "while an exchange uses the first")
			again.release()
			p.wantOpen(1, "when it no longer does")
			p.dial(first)
			p.wantOpen(1, "after a dial that came late")
		}
	})
}

func TestUnusedConnectionsAreClosed(t *testing.T) {
	inPool(t, 10, func(p *pooled) {
		p.age = time.Hour
		for n := range 2 {
			set := p.use(host(n))
			p.dial(set)
			set.release()
			time.Sleep(idleConnTimeout / 2)
		}
		time.Sleep(time.Second)
		p.sweep()
		p.wantOpen(1, "when one was not used for long")
		busy := p.use(host(1))
		time.Sleep(2 * idleConnTimeout)
		p.sweep()
		p.wantOpen(1, "when the other is in use")
		busy.release()
		p.wantOpen(0, "after that")
	})
}

func TestConnectionsAreFew(t *testing.T) {
	inPool(t, 10, func(p *pooled) {
		busy := p.use(host(0))
		for range 3 {
			p.dial(busy)
		}
		for n := range 30 {
			set := p.use(host(1 + n))
			p.dial(set)
			set.release()
			if p.open > 10 || len(p.sets) > 10 {
				t.Fatalf("%d connections of %d sets are open", p.open, len(p.sets))
			}
		}
		p.wantOpen(10, "with more hosts than that")
		busy.release()
		p.wantOpen(7, "when the first is not used any more")
		for n := range 30 {
			p.use(host(n)).release()
		}
		if n := len(p.sets); n != 10 {
			t.Errorf("there are %d sets", n)
		}
	})
}

// TestANameThatPointsElsewhereIsFound holds that a host's name is resolved again when its connections have their age,
// even while events flow. Requests under way on the former connections go on.
func TestANameThatPointsElsewhereIsFound(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			got, held, answer := make(chan string, 10), make(chan struct{}), make(chan struct{})
			at := func(address string) *httptest.Server {
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Reveille-Stream") == "/s/held" {
						close(held)
						<-answer
					}
					got <- address + " by " + r.Proto
				}))
				ln, err := net.Listen("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				_ = srv.Listener.Close()
				srv.Listener = ln
				if srv.EnableHTTP2 = protocol == "HTTP/2.0"; srv.EnableHTTP2 {
					srv.StartTLS()
				} else {
					srv.Start()
				}
				t.Cleanup(srv.Close)
				return srv
			}
			first := at("127.0.0.1:0")
			_, port, _ := net.SplitHostPort(first.Listener.Addr().String())
			second := at("127.0.0.2:" + port)
			resolver := startDNS(t, map[string][][]string{"example.com": {{"127.0.0.1"}, {"127.0.0.2"}}})
			hook := "http://example.com:" + port
			f := start(t, newMemStore(), func(c *Config) {
				c.ReadBatch, c.resolver, c.ConnectionAge = reads(oneEvent), resolver, time.Hour
			}, func(d *Dispatcher) {
				if first.TLS != nil {
					hook = "https://example.com:" + port
					d.sender.tls.RootCAs = second.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
				}
			})
			sub := f.store.pushSub(hook, nil)
			pushed := 0
			push := func(stream, want string) {
				t.Helper()
				pushed++
				f.Deliver(f.store.event(sub, stream, "0005"))
				if g := <-got; g != want+" by "+protocol {
					t.Errorf("%s went to %s, want %s", stream, g, want)
				}
				f.store.untilCalls(t, "Deliver", pushed) // its connection is free by then
			}
			push("/s/1", "127.0.0.1:0")
			push("/s/2", "127.0.0.1:0")
			f.Deliver(f.store.event(sub, "/s/held", "0005"))
			<-held
			f.sender.pool.mu.Lock()
			for _, set := range f.sender.pool.sets { // they have their age
				set.until = time.Now()
			}
			f.sender.pool.mu.Unlock()
			push("/s/3", "127.0.0.2:"+port)
			close(answer)
			if g := <-got; g != "127.0.0.1:0 by "+protocol {
				t.Errorf("what was under way went to %s", g)
			}
			f.store.untilCalls(t, "Deliver", 4)
			if n := f.store.called("Fail"); n != 0 {
				t.Errorf("%d attempts have failed", n)
			}
		})
	}
}
