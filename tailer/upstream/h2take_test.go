package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

var errNoWay = errors.New("no way")

// h2Dialled returns a client whose nth connection, from 1, is what dial makes of one that works. The server takes one
// request at a time on each, and answers without end. dials returns how many there were.
func h2Dialled(
	t *testing.T, dial func(ctx context.Context, n int, works net.Conn) (net.Conn, error),
) (client *Client, dials func() int) {
	serve := serveH2(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, func(srv *http.Server) { srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1} })
	var n atomic.Int32
	client = New(Config{
		URL: &url.URL{Scheme: "http", Host: "streams"}, H2C: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, peer := net.Pipe()
			t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
			go serve(peer)
			return dial(ctx, int(n.Add(1)), conn)
		},
	})
	return client, func() int { return int(n.Load()) }
}

// h2Playing plays the server's side of a connection that begins with these settings, from its first request on. The
// client writes first, and a pipe has no buffer.
func h2Playing(
	t *testing.T, conn net.Conn, play func(p *h2Peer, id uint32), settings ...http2.Setting,
) {
	p := newH2Peer(t, conn)
	if p == nil {
		return
	}
	var greets sync.WaitGroup
	greets.Go(func() { _ = p.WriteSettings(settings...) })
	id := p.asked()
	greets.Wait()
	play(p, id)
}

// h2Asked is a request that has begun. It closes end, or sends why it failed.
type h2Asked struct {
	answered chan struct{}
	failed   chan error
	end      context.CancelFunc
}

// h2Ask begins a request. Its answer goes on until end.
func h2Ask(t *testing.T, client *Client) *h2Asked {
	ctx, end := context.WithCancel(t.Context())
	a := &h2Asked{make(chan struct{}), make(chan error, 1), end}
	go func() {
		res, err := client.h2.do(ctx, "/a")
		if err != nil {
			a.failed <- err
			return
		}
		close(a.answered)
		<-ctx.Done()
		_ = res.Body.Close()
	}()
	synctest.Wait()
	return a
}

// is returns what became of a request by now.
func (a *h2Asked) is() string {
	synctest.Wait()
	select {
	case <-a.answered:
		return "answered"
	case err := <-a.failed:
		a.failed <- err
		return err.Error()
	default:
		return "waiting"
	}
}

// slowly takes a second to fail.
func slowly(ctx context.Context) (net.Conn, error) {
	if !Sleep(ctx, time.Second) {
		return nil, ctx.Err()
	}
	return nil, errNoWay
}

// TestAnAttemptToConnectOverHTTP2FailsOneRequest holds that an upstream does not count as down because one packet was
// lost: requests fail only by an attempt of their own.
func TestAnAttemptToConnectOverHTTP2FailsOneRequest(t *testing.T) {
	for how, first := range map[string]string{"it fails": errNoWay.Error(), "it is cancelled": "context canceled"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, dials := h2Dialled(t, func(ctx context.Context, n int, works net.Conn) (net.Conn, error) {
					if n == 1 {
						return slowly(ctx)
					}
					return works, nil
				})
				begins, waits, other := h2Ask(t, client), h2Ask(t, client), h2Ask(t, client)
				if waits.is() != "waiting" || dials() != 1 {
					t.Errorf("one that waits: %s, %d attempts", waits.is(), dials())
				}
				if how == "it is cancelled" {
					begins.end()
				} else {
					time.Sleep(time.Second)
				}
				if begins.is() != first || waits.is() != "answered" || other.is() != "answered" || dials() != 3 {
					t.Errorf("%s, %s, %s by %d attempts", begins.is(), waits.is(), other.is(), dials())
				}
				waits.end()
				other.end()
				synctest.Wait()
				client.Close()
			})
		})
	}
}

// TestAPlaceOverHTTP2ThatComesFreeIsTaken holds that each wakes a request that waits, and that an attempt to connect
// that fails then costs nothing.
func TestAPlaceOverHTTP2ThatComesFreeIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, dials := h2Dialled(t, func(ctx context.Context, n int, works net.Conn) (net.Conn, error) {
			if n > 2 {
				return slowly(ctx)
			}
			return works, nil
		})
		open := []*h2Asked{h2Ask(t, client), h2Ask(t, client)}
		dialling := h2Ask(t, client)
		waiting := []*h2Asked{h2Ask(t, client), h2Ask(t, client)}
		open[0].end()
		open[1].end()
		for _, a := range waiting {
			if a.is() != "answered" || dialling.is() != "waiting" {
				t.Errorf("one that waits: %s; the one that makes a connection: %s", a.is(), dialling.is())
			}
			a.end()
		}
		if time.Sleep(time.Second); dialling.is() != "answered" || dials() != 3 {
			t.Errorf("it: %s, %d attempts", dialling.is(), dials())
		}
		dialling.end()
		synctest.Wait()
		client.Close()
	})
}

// TestALimitOfHTTP2ThatRisesWakesRequests holds that all of them look for a place that there is now.
func TestALimitOfHTTP2ThatRisesWakesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rises := make(chan struct{})
		var dials atomic.Int32
		client := h2Piped(t, func(conn net.Conn) {
			if dials.Add(1); dials.Load() > 1 {
				return // it does not begin
			}
			h2Playing(t, conn, func(p *h2Peer, id uint32) {
				p.header(id, false, ":status", "200")
				<-rises
				_ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 3})
				for id := p.asked(); id != 0; id = p.asked() {
					p.header(id, false, ":status", "200")
				}
			}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		})
		first, dialling := h2Ask(t, client), h2Ask(t, client)
		waiting := []*h2Asked{h2Ask(t, client), h2Ask(t, client)}
		close(rises)
		for _, a := range waiting {
			if first.is() != "answered" || a.is() != "answered" || dialling.is() != "waiting" {
				t.Errorf("%s, %s; the one that makes a connection: %s", first.is(), a.is(), dialling.is())
			}
		}
		for _, a := range append(waiting, first, dialling) {
			a.end()
		}
		synctest.Wait()
		client.Close()
	})
}

// TestARequestOverHTTP2PausesBeforeItIsSentAgain holds that an upstream that is busy gets time, after a first try
// at once.
func TestARequestOverHTTP2PausesBeforeItIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var sent []time.Duration
		client := h2Piped(t, func(conn net.Conn) {
			h2Playing(t, conn, func(p *h2Peer, id uint32) {
				for ; id != 0; id = p.asked() {
					sent = append(sent, time.Since(began))
					_ = p.WriteRSTStream(id, http2.ErrCodeRefusedStream)
				}
			})
		})
		asked := h2Ask(t, client)
		time.Sleep(2 * time.Second)
		if !strings.Contains(asked.is(), "REFUSED_STREAM") || len(sent) != 4 || sent[1] != 0 ||
			sent[2] < 75*time.Millisecond || sent[2] > 100*time.Millisecond ||
			sent[3]-sent[2] < 750*time.Millisecond || sent[3]-sent[2] > time.Second {
			t.Errorf("%s; sent at %s", asked.is(), sent)
		}
		asked = h2Ask(t, client)
		time.Sleep(200 * time.Millisecond)
		asked.end()
		if asked.is() != context.Canceled.Error() {
			t.Errorf("one that is cancelled: %s", asked.is())
		}
		client.Close()
	})
}

// TestAnIdleConnectionOfHTTP2IsClosedAlthoughItIsPinged holds that frames do not keep it.
func TestAnIdleConnectionOfHTTP2IsClosedAlthoughItIsPinged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Bool
		client := h2Piped(t, func(conn net.Conn) {
			h2Playing(t, conn, func(p *h2Peer, id uint32) {
				go p.await(func(http2.Frame) bool { return false })
				for p.ok(id, "ok"); p.WritePing(false, [8]byte{1}) == nil; {
					time.Sleep(pingAfter - time.Second)
				}
				closed.Store(true)
			})
		})
		if _, body, err := h2Get(t.Context(), client); body != "ok" {
			t.Errorf("got %q, %v", body, err)
		}
		time.Sleep(connsIdleTime - pingAfter)
		if closed.Load() {
			t.Error("it was closed too soon")
		}
		if time.Sleep(3 * pingAfter); !closed.Load() {
			t.Error("it is kept")
		}
	})
}

// bounded is a connection that says until when it may be written to.
type bounded struct {
	net.Conn
	until *atomic.Pointer[time.Time]
}

func (b bounded) SetWriteDeadline(until time.Time) error {
	b.until.Store(&until)
	return b.Conn.SetWriteDeadline(until)
}

// TestAWriteOverHTTP2BoundsNoLaterOne holds that TLS may write of its own accord while nothing comes, to change a key.
func TestAWriteOverHTTP2BoundsNoLaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var until atomic.Pointer[time.Time]
		client, _ := h2Dialled(t, func(_ context.Context, _ int, works net.Conn) (net.Conn, error) {
			return bounded{works, &until}, nil
		})
		asked := h2Ask(t, client)
		if asked.is() != "answered" || !until.Load().IsZero() {
			t.Errorf("%s; writes are bounded until %s", asked.is(), until.Load())
		}
		asked.end()
		synctest.Wait()
		client.Close()
	})
}

// closing is a connection that tells when it is closed.
type closing struct {
	net.Conn
	closed func()
}

func (c closing) Close() error {
	c.closed()
	return c.Conn.Close()
}

// TestAServerOfHTTP2ThatReadsNothingLosesItsConnection holds that a connection ends for good once a write takes too
// long, although TLS cannot say goodbye then, and other writes follow.
func TestAServerOfHTTP2ThatReadsNothingLosesItsConnection(t *testing.T) {
	server, trusted := h2Certificate(t)
	asked, closed := make(chan struct{}), make(chan struct{})
	var peers sync.WaitGroup
	client := New(Config{
		URL: &url.URL{Scheme: "https", Host: "example.com"}, TLS: trusted,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			conn, peer := net.Pipe()
			peers.Go(func() {
				h2Playing(t, tls.Server(peer, server), func(p *h2Peer, _ uint32) {
					for range 7 {
						p.asked()
					}
					close(asked)
					<-closed
				})
			})
			return closing{conn, sync.OnceFunc(func() { close(closed) })}, nil
		},
	})
	client.http2.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	var requests sync.WaitGroup
	for range 8 {
		requests.Go(func() { _, _ = client.h2.do(ctx, "/a") })
	}
	<-asked
	cancel()
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("it stays")
	}
	client.Close()
	requests.Wait()
	if !t.Failed() {
		peers.Wait()
	}
}
