package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestPushesOfStreamsAsTheyAre holds what is pushed of streams that are empty, at their end, or gone.
func TestPushesOfStreamsAsTheyAre(t *testing.T) {
	t.Parallel()
	e := shared(t)

	t.Run("nothing of an empty stream, and then its first event", func(t *testing.T) {
		p := e.pushes(t, nil)
		path := p.folder + "/empty"
		p.gateway.Create(path)
		p.awaitOf(path, "a consumer that waits for its first event", func(c fsm.Consumer) bool {
			return c.State == fsm.Idle && c.Links[path].Tail != ""
		})
		if n := len(p.receiver.Pushes()); n > 0 {
			t.Errorf("%d pushes came", n)
		}
		p.want(path, p.add(path, 0, 1))
	})

	t.Run("the event that a stream is closed with, and nothing more", func(t *testing.T) {
		for _, at := range []string{"gateway", "server"} {
			p := e.pushes(t, nil)
			path := p.folder + "/closed"
			p.gateway.Create(path)
			last := `{"last":true}`
			client := map[string]*harness.Client{"gateway": p.gateway, "server": p.streams}[at]
			r := client.Do(http.MethodPost, path, last, "Content-Type", "application/json", "Stream-Closed", "true")
			if r.Status/100 != 2 {
				t.Fatalf("POST: %d %s", r.Status, r.Body)
			}
			p.want(path, []string{last})
			p.awaitOf(path, "a consumer at rest", func(c fsm.Consumer) bool {
				l := c.Links[path]
				return c.State == fsm.Idle && string(l.Tail) == p.streams.Tail(path) && l.Acked == l.Tail
			})
			if _, events := p.receiver.Taken(path); len(events) != 1 {
				t.Errorf("past the %s: %q came", at, events)
			}
		}
	})

	t.Run("nothing of a stream that is deleted while a delivery of it is retried", func(t *testing.T) {
		p := e.pushes(t, map[string]any{"retry": map[string]any{"schedule": []string{"1s", "1s", "1s", "1h"}}})
		p.receiver.Answer(func(_ int, push harness.Push) int {
			if strings.Contains(string(push.Body), `"n":0`) {
				return http.StatusServiceUnavailable
			}
			return http.StatusNoContent
		})
		p.add(p.path, 0, 3)
		p.await("a retry", func(c fsm.Consumer) bool { return c.Attempt > 1 })
		p.gateway.DeleteStream(p.path)
		if c, err := p.consumerOf(p.path); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("the consumer is there: %+v, %v", c, err)
		}
		p.gateway.Create(p.path)
		p.want(p.path, p.add(p.path, 7, 9))
	})
}

// counted is a body of which the largest amount that was read is noted.
type counted struct {
	io.ReadCloser
	read int64
	most *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.read += int64(n)
	for was := c.most.Load(); c.read > was && !c.most.CompareAndSwap(was, c.read); {
		was = c.most.Load()
	}
	return n, err
}

// TestALongBacklogTakesNoMemory has a stream get 6,000 events, 29 MiB, by one append, whose endpoint takes some at a
// time for a while, then the rest. It holds that memory stays flat, that the server sends little more than what was
// taken, and that each event comes once.
func TestALongBacklogTakesNoMemory(t *testing.T) {
	t.Parallel()
	const events, batch, slow, allowed = 6_000, 50, 40, 8 << 20
	var reads, taken, most, early atomic.Int64
	h := &hop{}
	e := beside(t, options{upstream: h.before(t), settings: map[string]string{"REVEILLE_PPROF": "true"}})
	p := e.pushes(t, map[string]any{"batch": batch})
	path := p.folder + "/long"
	h.change(func(res *http.Response) {
		r := res.Request
		if r.Method == http.MethodGet && r.URL.Query().Get("live") == "" && r.URL.Path == path {
			reads.Add(1)
			res.Body = &counted{ReadCloser: res.Body, most: &most}
		}
	})
	p.gateway.Create(path)
	first := p.add(path, 0, 1)
	p.want(path, first)
	// The memory that is resident has garbage, and what the race detector notes. So only what is live counts.
	operator := harness.NewClient(t, e.rev.Operator)
	memory := func() (live int) {
		res := operator.Do(http.MethodGet, "/debug/pprof/heap?gc=1&debug=1", "")
		_, found, _ := strings.Cut(res.Body, "\n# HeapAlloc = ")
		if _, err := fmt.Sscan(found, &live); err != nil {
			t.Fatalf("the profile does not say how much memory is live: %v", err)
		}
		return live
	}
	before, peak := memory(), 0
	p.receiver.Answer(func(_ int, push harness.Push) int {
		n := taken.Add(int64(bytes.Count(push.Body, []byte(`"n":`))))
		if n <= slow*batch/4 {
			early.Store(most.Load())
		}
		if n <= slow*batch {
			time.Sleep(time.Second / 10) // it takes its time
		}
		return http.StatusNoContent
	})
	list := make([]string, events)
	for i := range list {
		list[i] = fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("x", 5000))
	}
	p.streams.Append(path, "["+strings.Join(list, ",")+"]")
	harness.Progress(t, "all have come", func() (int, error) {
		peak = max(peak, memory())
		return events - int(taken.Load()), nil
	})
	p.want(path, append(first, list...))
	if peak > before+allowed {
		t.Errorf("%d MiB are live, and %d MiB were before", peak>>20, before>>20)
	}
	if n := early.Load(); n == 0 || n > 16<<20 {
		t.Errorf("the server had sent %d bytes when the endpoint had taken %d events", n, slow*batch/4)
	}
	if n := reads.Load(); n > 20 {
		t.Errorf("the stream server was asked %d times", n)
	}
	for _, push := range p.receiver.Pushes() {
		if _, got, err := push.Events(); err != nil || len(got) > batch {
			t.Errorf("%s brought %d events, %v", push.ID, len(got), err)
		}
	}
}
