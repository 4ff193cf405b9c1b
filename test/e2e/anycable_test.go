package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/test/anycable"
	"reveille/test/harness"
)

// broker is an env whose stream server is one like AnyCable, with a worker that reads what it is woken for.
type broker struct {
	*env
	server *anycable.Server
	worker *harness.Worker
	// front, if set, answers in the server's place; false lets a request pass.
	front atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
	// query and header are what the worker's reads carry.
	query  string
	header []string

	mu sync.Mutex
	// read are the events that the worker has read, in their order; acked are the offsets that it went on from.
	read, from []string
	// lost counts the offsets that were not kept, done the wakes that the worker is done with.
	lost, done int
}

func startBroker(
	t *testing.T, opts anycable.Options, settings map[string]string, between func(http.Handler) http.Handler,
) *broker {
	t.Helper()
	if opts.Poll == 0 {
		opts.Poll = 300 * time.Millisecond
	}
	c := &broker{server: anycable.New(opts), worker: harness.NewWorker(t)}
	var h http.Handler = c.server
	if between != nil {
		h = between(h)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if front := c.front.Load(); front == nil || !(*front)(w, r) {
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	c.env = &env{t: t, redis: startRedis(t)}
	all := map[string]string{"REVEILLE_UPSTREAM_URL": srv.URL + "/ds", "REVEILLE_REDIS_URL": c.redis.URL}
	maps.Copy(all, calm)
	maps.Copy(all, settings)
	c.rev = harness.StartReveille(t, all)
	c.gateway, c.streams = harness.NewClient(t, c.rev.URL), harness.NewClient(t, srv.URL+"/ds")
	c.worker.Answer(c.work)
	return c
}

// work reads on from where the wake says, as workers do, acks what it has read and is done.
func (c *broker) work(rw http.ResponseWriter, r *http.Request, wake harness.Wake) {
	acks := make([]harness.StreamOffset, 0, len(wake.Streams))
	for _, s := range wake.Streams {
		c.note(func() { c.from = append(c.from, s.Offset) })
		acks = append(acks, harness.StreamOffset{Path: s.Path, Offset: c.readOn(r, s.Path, s.Offset)})
	}
	rw.WriteHeader(http.StatusOK)
	rw.(http.Flusher).Flush()
	go func() {
		answer := c.gateway.Callback(wake, wake.Claim(true, acks...))
		if answer.Status != http.StatusOK && answer.Status != http.StatusGone {
			c.t.Errorf("the callback of %s was answered %d: %s", wake, answer.Status, answer.Body)
		}
		c.note(func() { c.done++ })
	}()
}

func (c *broker) readOn(r *http.Request, path, offset string) string {
	for {
		from := path + "?offset=" + url.QueryEscape(offset) + c.query
		res, err := c.gateway.Try(r.Context(), http.MethodGet, from, "", c.header...)
		switch {
		case err != nil:
			return offset
		case res.Status == http.StatusGone:
			c.note(func() { c.lost++ })
			offset = "-1"
			continue
		case res.Status != http.StatusOK:
			c.t.Errorf("the worker's read was answered %d: %s", res.Status, res.Body)
			return offset
		}
		var events []json.RawMessage
		res.Decode(c.t, &events)
		c.note(func() {
			for _, e := range events {
				c.read = append(c.read, string(e))
			}
		})
		next := res.Header.Get("Stream-Next-Offset")
		if len(events) == 0 {
			return next
		}
		offset = next
	}
}

func (c *broker) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// awaitRead waits until the worker has read these events and no others, each once.
func (c *broker) awaitRead(want []string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, "the worker has read everything", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if got := strings.Join(c.read, " "); got != strings.Join(want, " ") {
			return fmt.Errorf("it has read %d of %d events: %.300s", len(c.read), len(want), got)
		}
		if wakes := len(c.worker.Wakes()); c.done < wakes {
			return fmt.Errorf("it is done with %d of %d wakes", c.done, wakes)
		}
		return nil
	})
}

// publish publishes further events, numbered on, with times between them that let some of them come together.
func (c *broker) publish(name string, read []string, n int) []string {
	for range n {
		read = append(read, strconv.Itoa(len(read)+1))
		c.server.Publish(name, read[len(read)-1])
		time.Sleep(time.Duration(len(read)%7) * 3 * time.Millisecond)
	}
	return read
}

func TestEachEventOfAnyCableIsReadOnce(t *testing.T) {
	t.Parallel()
	many := 129
	if testing.Short() {
		many = 29
	}
	for _, tt := range []struct {
		name     string
		opts     anycable.Options
		settings map[string]string
		pattern  string
		query    func(name string) string
		header   []string
	}{
		{name: "by a pattern without a wildcard", pattern: "/agents/t1"},
		{name: "by a name", pattern: "/agents/*", settings: map[string]string{"REVEILLE_STREAMS": "/agents/t1"}},
		{name: "by SSE", pattern: "/agents/t1", settings: map[string]string{"REVEILLE_TAIL_MODE": "sse"}},
		{
			name: "whose HEAD says now", pattern: "/agents/t1", opts: anycable.Options{HeadSaysNow: true},
			settings: map[string]string{"REVEILLE_UPSTREAM_DIALECT": "anycable"},
		},
		{
			name: "with signed streams", pattern: "/agents/t1",
			opts: anycable.Options{Secret: "hush-hush", Bearer: "me"},
			settings: map[string]string{
				"REVEILLE_UPSTREAM_SIGNING_KEY": "hush-hush", "REVEILLE_UPSTREAM_HEADERS": "Authorization=Bearer me",
			},
			query: func(name string) string {
				return "&signed=" + url.QueryEscape(anycable.Signed("hush-hush", name))
			},
			header: []string{"Authorization", "Bearer me"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.opts.History = 1000
			c := startBroker(t, tt.opts, tt.settings, nil)
			if tt.query != nil {
				c.query, c.header = tt.query("agents/t1"), tt.header
			}
			c.gateway.Subscribe(tt.pattern, "s", c.worker)
			read := c.publish("agents/t1", nil, 1)
			c.awaitRead(read)
			read = c.publish("agents/t1", read, many)
			c.awaitRead(read)
			// An idle consumer, and one more event: nothing of the past is delivered with it.
			read = c.publish("agents/t1", read, 1)
			c.awaitRead(read)
			if n := c.server.Refused.Load(); n > 0 {
				t.Errorf("%d requests were refused", n)
			}
		})
	}
}

func TestARestartedBrokerBeginsAtItsStart(t *testing.T) {
	t.Parallel()
	const before = 5
	for name, after := range map[string]int{"with fewer events": 2, "with as many": before, "with more": 12} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startBroker(t, anycable.Options{Poll: time.Minute},
				map[string]string{"REVEILLE_TAIL_CHECK": "100ms"}, nil)
			c.gateway.Subscribe("/t1", "s", c.worker)
			read := c.publish("t1", nil, before)
			c.awaitRead(read)
			old := c.streams.Tail("/t1")
			c.server.Restart()
			for range after {
				read = append(read, strconv.Itoa(len(read)+1))
			}
			c.server.Publish("t1", read[before:]...)
			c.awaitRead(read)
			c.note(func() {
				if c.lost > 0 || c.from[len(c.from)-1] != "-1" {
					t.Errorf("it was woken at %v and lost %d offsets, want the start", c.from, c.lost)
				}
			})
			// An answer of the old epoch that comes late, and again, changes nothing.
			var late atomic.Int32
			stale := func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodHead || late.Add(1)%2 == 0 {
					return false
				}
				w.Header().Set("X-AnyCable-Version", "1.6.0-like")
				w.Header().Set("Stream-Next-Offset", old)
				return true
			}
			wakes := len(c.worker.Wakes())
			c.front.Store(&stale)
			harness.Eventually(t, soon, "late answers",
				harness.True(func() bool { return late.Load() >= 6 }, "there are few"))
			c.front.Store(nil)
			if n := len(c.worker.Wakes()); n != wakes {
				t.Errorf("late answers of the old epoch woke %d times", n-wakes)
			}
			read = c.publish("t1", read, 1)
			c.awaitRead(read)
		})
	}
}

func TestAStreamWhoseEventsExpireKeepsItsConsumers(t *testing.T) {
	t.Parallel()
	const grace = 100 * time.Millisecond
	c := startBroker(t, anycable.Options{}, map[string]string{"REVEILLE_STREAM_GONE_GRACE": grace.String()}, nil)
	var asked atomic.Int64
	count := func(http.ResponseWriter, *http.Request) bool { asked.Add(1); return false }
	c.front.Store(&count)
	c.gateway.Subscribe("/t1", "s", c.worker)
	read := c.publish("t1", nil, 5)
	c.awaitRead(read)
	c.server.Expire("t1")
	// Either a read finds its offset gone first, or a HEAD finds the stream empty. What the former leads to, the tests
	// of tailer/upstream hold too.
	const anew = "a new stream under an old name"
	harness.Eventually(t, soon, "it is seen that the events have expired", harness.True(func() bool {
		return c.server.Lost.Load() > 0 || strings.Contains(c.rev.Log(), anew)
	}, "it is not"))
	// A stream that is gone loses its consumers as soon as it is asked for after the grace.
	lost, before := time.Now(), asked.Load()
	harness.Eventually(t, soon, "it is asked for after the grace", harness.True(func() bool {
		if time.Since(lost) < 2*grace {
			before = asked.Load()
		}
		return asked.Load() >= before+3
	}, "it is not"))
	c.awaitMetrics(t, map[string]float64{"reveille_upstream_up": 1})
	if !strings.Contains(c.rev.Log(), anew) {
		harness.Eventually(t, soon, "a metric says that an offset is not kept any more", harness.True(func() bool {
			found, _ := c.scrape(t)
			return found[`reveille_upstream_requests_total{kind="tail",outcome="not_kept"}`] > 0
		}, "none does"))
		c.awaitLog(t, `"stream":"/t1"`, "the stream server does not keep an offset any more")
	}
	if n := len(c.worker.Wakes()); n == 0 || c.worker.Wakes()[n-1].Epoch == 0 {
		t.Errorf("%d wakes", n)
	}
	read = c.publish("t1", read, 2)
	c.awaitRead(read)
}

func TestACacheInFrontOfAnyCableHidesNoEvent(t *testing.T) {
	t.Parallel()
	c := startBroker(t, anycable.Options{}, nil, func(h http.Handler) http.Handler { return &anycable.Cache{Next: h} })
	c.gateway.Subscribe("/t1", "s", c.worker)
	c.worker.AnswerDone() // what it reads through the cache is its own business
	for n := 1; n <= 12; n++ {
		c.server.Publish("t1", strconv.Itoa(n))
		harness.Eventually(t, soon, "a wake", harness.True(func() bool {
			_, err := c.gateway.Try(t.Context(), http.MethodGet, "/t1", "")
			return err == nil && len(c.worker.Wakes()) >= n
		}, "none"))
	}
}

func TestAWriteToAnyCableIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	c := startBroker(t, anycable.Options{}, nil, nil)
	c.awaitMetrics(t, map[string]float64{"reveille_upstream_up": 1})
	for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodDelete} {
		res := c.gateway.Do(method, "/t1", `{}`)
		if res.Status != http.StatusMethodNotAllowed || !strings.Contains(res.Body, "METHOD_NOT_ALLOWED") {
			t.Errorf("%s was answered %d: %s", method, res.Status, res.Body)
		}
	}
}

// TestTheGatewayAddsNothingOfOursToAClientsRequest holds that a client gets no further than by what it has itself: it
// is Reveille's own requests that are signed and carry its credentials.
func TestTheGatewayAddsNothingOfOursToAClientsRequest(t *testing.T) {
	t.Parallel()
	signed := "&signed=" + url.QueryEscape(anycable.Signed("hush-hush", "t1"))
	for _, tt := range []struct {
		name          string
		opts          anycable.Options
		setting, ours string
		query         string
		header        []string
	}{
		{
			name: "a signature", opts: anycable.Options{Secret: "hush-hush"}, query: signed,
			setting: "UPSTREAM_SIGNING_KEY", ours: "hush-hush",
		},
		{
			name: "a token", opts: anycable.Options{Bearer: "me"}, header: []string{"Authorization", "Bearer me"},
			setting: "UPSTREAM_HEADERS", ours: "Authorization=Bearer me",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := startBroker(t, tt.opts, map[string]string{"REVEILLE_" + tt.setting: tt.ours}, nil)
			c.server.Publish("t1", "1")
			c.awaitMetrics(t, map[string]float64{"reveille_upstream_up": 1})
			for _, query := range []string{"?offset=-1", "?offset=-1&live=long-poll", "?offset=-1&live=sse"} {
				res := c.gateway.Do(http.MethodGet, "/t1"+query, "")
				if res.Status != http.StatusUnauthorized {
					t.Errorf("%s without it was answered %d: %s", query, res.Status, res.Body)
				}
			}
			res := c.gateway.Do(http.MethodGet, "/t1?offset=-1"+tt.query, "", tt.header...)
			if res.Status != http.StatusOK {
				t.Errorf("with it the answer is %d: %s", res.Status, res.Body)
			}
		})
	}
}
