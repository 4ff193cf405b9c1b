package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
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

// TestAPlaceOverHTTP2ThatComesFreeIsTaken holds that each wakes a request that waits, and that an attempt to connect that
// fails then costs nothing.
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
			p := newH2Peer(t, conn)
			one := http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}
			var greets sync.WaitGroup
			greets.Go(func() { _ = p.WriteSettings(one) }) // the client writes first, and a pipe has no buffer
			id := p.asked()
			greets.Wait()
			p.header(id, false, ":status", "200")
			<-rises
			one.Val += 2
			_ = p.WriteSettings(one)
			for id := p.asked(); id != 0; id = p.asked() {
				p.header(id, false, ":status", "200")
			}
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
