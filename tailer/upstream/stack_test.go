package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// silentStreams is how many streams these tests watch.
const silentStreams = 200

func TestASilentStreamOverHTTP2NeedsASmallStack(t *testing.T) {
	for _, mode := range []string{TailLongPoll, TailSSE} {
		t.Run(mode, func(t *testing.T) {
			all := make(chan struct{})
			client, _ := h2Serve(t, h2Greeting(), func(p *h2Peer, _ int) {
				for range silentStreams {
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
			needSmallStacks(t, client, all)
		})
	}
}

func TestASilentStreamOverHTTP1NeedsASmallStack(t *testing.T) {
	answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"%x\r\n%s\r\n", len(news), news)
	for mode, answer := range map[string]string{
		TailLongPoll: "", TailSSE: answer, "SSE with comments": answer + "3\r\n:\n\n\r\n",
	} {
		t.Run(mode, func(t *testing.T) {
			if !isAlone(t) {
				return
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			all := make(chan struct{})
			go func() { // one for all, because its stack counts, too
				for range silentStreams {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					defer func() { _ = conn.Close() }()
					if _, err = http.ReadRequest(bufio.NewReader(conn)); err != nil {
						return
					}
					_, _ = io.WriteString(conn, answer)
				}
				close(all)
				_, _ = ln.Accept()
			}()
			defer func() { _ = ln.Close() }()
			client := New(Config{URL: &url.URL{Scheme: "http", Host: ln.Addr().String()}, TailMode: TailSSE})
			if answer == "" {
				client.cfg.TailMode = TailLongPoll
			}
			needSmallStacks(t, client, all)
		})
	}
}

// isAlone says whether a test has a process to itself. If not, it runs the test in another one. The stacks that other
// tests leave would count here.
func isAlone(t *testing.T) bool {
	t.Helper()
	const alone = "UPSTREAM_TEST_ALONE"
	if os.Getenv(alone) != "" {
		return true
	}
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", name)
	cmd.Env = append(os.Environ(), alone+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

// needSmallStacks holds what a silent stream costs most: the stack of the goroutine that waits. The runtime halves a
// stack of 8 KiB only if the wait uses less than 2 KiB of it, with 800 bytes to spare. Some 30 bytes are left, so the
// limit holds only for the compiler that it was measured with. Once all is closed, all streams are watched.
func needSmallStacks(t *testing.T, client *Client, all <-chan struct{}) {
	t.Helper()
	const least = 2 << 10 // no stack is smaller
	limit := 5 << 10
	if isRaced() || runtime.GOARCH != "amd64" || !strings.HasPrefix(runtime.Version(), "go1.26") {
		limit = 9 << 10
	}
	parked := make(chan struct{}) // these take what earlier stacks have left, and the streams would use
	defer close(parked)
	for range 5 * silentStreams {
		go func() { <-parked }()
	}
	before := stacks()
	ctx, cancel := context.WithCancel(t.Context())
	var over sync.WaitGroup
	for i := range silentStreams {
		w := &silent{ctx: ctx, client: client, conn: client.NewConn(), path: fmt.Sprintf("/%d", i)}
		over.Go(w.run)
	}
	<-all
	each := 0
	for end := time.Now().Add(10 * time.Second); each < least || each > limit; {
		if each = (stacks() - before) / silentStreams; time.Now().After(end) {
			t.Errorf("%d bytes each", each)
			break
		}
	}
	cancel()
	over.Wait()
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
