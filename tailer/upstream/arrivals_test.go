package upstream

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
)

// counting counts the reads from a connection.
type counting struct {
	net.Conn
	reads *atomic.Int64
}

func (c counting) Read(p []byte) (int, error) {
	c.reads.Add(1)
	return c.Conn.Read(p)
}

// answering returns a client that watches by SSE. Its server answers each connection with text, and goes on to hold it
// if holds is set. The client gives up after a minute.
func answering(t *testing.T, text string, holds bool) (client *Client, ctx context.Context, reads *atomic.Int64) {
	t.Helper()
	reads = new(atomic.Int64)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return New(Config{
		URL: &url.URL{Scheme: "http", Host: "streams"}, TailMode: TailSSE,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			conn, peer := net.Pipe()
			t.Cleanup(func() { _, _ = conn.Close(), peer.Close() })
			go func() {
				_, _ = peer.Read(make([]byte, 4096)) // the request
				if _, err := peer.Write([]byte(text)); err == nil && holds {
					<-ctx.Done()
				}
				_ = peer.Close()
			}()
			return counting{conn, reads}, nil
		},
	}), ctx, reads
}

// TestALongAnswerIsReadInParts holds that only the first byte after a silence is read alone.
func TestALongAnswerIsReadInParts(t *testing.T) {
	const header = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	var body strings.Builder
	for i := range 100 {
		fmt.Fprintf(&body, "event: data\ndata: %01000d\n\n", i)
		fmt.Fprintf(&body, "event: control\ndata: {\"streamNextOffset\":\"%d\"}\n\n", i+1)
	}
	all := body.String()
	for how, text := range map[string]string{
		"to the end of the connection": header + "\r\n" + all,
		"of a known length":            fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", header, len(all), all),
		"in chunks": fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
			header, len(all), all),
	} {
		t.Run(how, func(t *testing.T) {
			client, ctx, reads := answering(t, text, false)
			conn, shown := client.NewConn(), 0
			err := client.Live(ctx, &conn, "/a", fsm.Start, "", func(Event) error {
				shown++
				return nil
			})
			if err != nil || shown != 100 {
				t.Errorf("%d events are shown, %v", shown, err)
			}
			if n := reads.Load(); n > int64(len(all)/100) {
				t.Errorf("%d bytes took %d reads", len(all), n)
			}
		})
	}
}

// TestAnAnswerThatBreaksTheRulesEndsAtOnce holds that it does so even if the server then says nothing more.
func TestAnAnswerThatBreaksTheRulesEndsAtOnce(t *testing.T) {
	const header = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for how, text := range map[string]string{
		"no end of a chunk": "3\r\n:\n\nXX", "no size of a chunk": "3\r\n:\n\n\r\nzz\r\n",
	} {
		t.Run(how, func(t *testing.T) {
			client, ctx, _ := answering(t, header+text, true)
			conn := client.NewConn()
			err := client.Live(ctx, &conn, "/a", fsm.Start, "", func(Event) error { return nil })
			if err == nil || ctx.Err() != nil {
				t.Errorf("it ends with %v, the request with %v", err, ctx.Err())
			}
		})
	}
}
