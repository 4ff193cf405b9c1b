package upstream

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// TestASilentStreamOverHTTP2NeedsASmallStack holds what a silent stream costs most: the stack of the goroutine that
// waits. The runtime halves a stack of 8 KiB only if the wait uses less than 2 KiB of it, with 800 bytes to spare.
func TestASilentStreamOverHTTP2NeedsASmallStack(t *testing.T) {
	const streams, least = 200, 2 << 10 // no stack is smaller
	limit := 5 << 10
	if isRaced() {
		limit = 9 << 10
	}
	for _, mode := range []string{TailLongPoll, TailSSE} {
		t.Run(mode, func(t *testing.T) {
			all := make(chan struct{})
			client, _ := h2Serve(t, h2Greeting(), func(p *h2Peer, _ int) {
				for range streams {
					id := p.asked()
					if mode == TailSSE {
						p.header(id, false, ":status", "200", "content-type", "text/event-stream")
						_ = p.WriteData(id, false, []byte(news))
					}
				}
				close(all)
				p.await(func(http2.Frame) bool { return false })
			})
			client.cfg.TailMode = mode
			parked := make(chan struct{}) // these take what earlier stacks have left, and the streams would use
			defer close(parked)
			for range 5 * streams {
				go func() { <-parked }()
			}
			before := stacks()
			ctx, cancel := context.WithCancel(t.Context())
			var over sync.WaitGroup
			for i := range streams {
				w := &silent{ctx: ctx, client: client, conn: client.NewConn(), path: fmt.Sprintf("/%d", i)}
				over.Go(w.run)
			}
			<-all
			each := 0
			for end := time.Now().Add(time.Minute); each < least || each > limit; {
				if each = (stacks() - before) / streams; time.Now().After(end) {
					t.Errorf("%d bytes each", each)
					break
				}
			}
			cancel()
			over.Wait()
		})
	}
}

// isRaced says whether the race detector is on. It needs more of each stack.
func isRaced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-race" && s.Value == "true"
	})
}

// stacks returns how much memory stacks take once they have shrunk.
func stacks() int {
	for range 5 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.StackInuse)
}

// silent watches a stream, with as much on its stack as the tailer has.
type silent struct {
	ctx    context.Context
	client *Client
	conn   Conn
	path   string
}

func (w *silent) run() {
	var frame [96]byte
	_ = w.client.Live(w.ctx, &w.conn, w.path, "0", "", w.heard)
	runtime.KeepAlive(&frame)
}

func (w *silent) heard(Event) error { return nil }
