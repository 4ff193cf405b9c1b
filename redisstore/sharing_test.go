package redisstore

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"reveille/test/harness"
)

// gate holds requests up and counts what goes together.
type gate struct {
	// open lets calls that go alone through; nil lets them through anyway.
	open chan struct{}
	// alone is how many went alone, together how many went with others, in how many requests.
	alone, together, requests atomic.Int64
	// spoil has requests with several calls go wrong.
	spoil func(send func() error, cmds []redis.Cmder) error
}

func (*gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			g.alone.Add(1)
			if g.open != nil {
				<-g.open
			}
		}
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "evalsha" { // a new connection's own
			return next(ctx, cmds)
		}
		g.together.Add(int64(len(cmds)))
		g.requests.Add(1)
		if g.spoil != nil {
			return g.spoil(func() error { return next(ctx, cmds) }, cmds)
		}
		return next(ctx, cmds)
	}
}

// echoText counts how often it was carried out for an argument, and returns that argument, as an error
// if that is what it says.
const echoText = `
redis.call('INCR', KEYS[1] .. ARGV[1])
if ARGV[1] == 'refused' then return redis.error_reply('ERR refused') end
return ARGV[1]`

var echo = &script{
	name: "echo", text: func() string { return echoText }, hash: func() string { return hashOf(echoText) },
}

type echoed struct {
	v   any
	err error
}

func openSharing(t *testing.T) (*sharing, *gate) {
	t.Helper()
	client, closeClient, err := connectWithin(patient, EmptyRedis(t).URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeClient() })
	if err := client.ScriptLoad(t.Context(), echoText).Err(); err != nil {
		t.Fatal(err)
	}
	g := &gate{open: make(chan struct{})}
	client.AddHook(g)
	return newSharing(&scriptClient{rdb: client, log: zap.NewNop(), limits: patient}), g
}

func (h *sharing) echo(ctx context.Context, word string) <-chan echoed {
	c := make(chan echoed, 1)
	go func() {
		v, err := h.run(ctx, scriptCall{
			script: echo, keys: []string{"k:"}, args: []any{word}, began: time.Now(),
		})
		c <- echoed{v, err}
	}()
	return c
}

// fill has as many calls under way as go alone.
func (h *sharing) fill(t *testing.T, g *gate) (calls []<-chan echoed) {
	t.Helper()
	for range sendersMax {
		calls = append(calls, h.echo(t.Context(), "first"))
	}
	harness.Eventually(t, harness.Wait, "the first calls are sent at once",
		harness.True(func() bool { return g.alone.Load() == sendersMax }, "%d were", sendersMax))
	return calls
}

// queue has calls wait for those that are under way.
func (h *sharing) queue(t *testing.T, words ...string) (calls []<-chan echoed) {
	t.Helper()
	for i, word := range words {
		calls = append(calls, h.echo(t.Context(), word))
		harness.Eventually(t, harness.Wait, "a call waits for those before it", harness.True(func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.waiting) == i+1
		}, "%s does not", word))
	}
	return calls
}

func TestCallsThatComeWhileOthersAreUnderWayGoTogether(t *testing.T) {
	t.Parallel()
	failed := func(err error) func(func() error, []redis.Cmder) error {
		return func(_ func() error, cmds []redis.Cmder) error {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
	}
	for _, c := range []struct {
		name string
		// spoil is what happens to requests with several calls.
		spoil func(send func() error, cmds []redis.Cmder) error
		// alone is how many of five are sent alone in the end, each how many times carried out.
		alone, times int64
	}{
		{name: "and are answered", alone: 0, times: 1},
		{name: "and are sent alone if the connection breaks", spoil: failed(io.EOF), alone: 5, times: 1},
		{
			name:  "and are sent alone if the server is starting",
			spoil: failed(answer("LOADING Redis is loading the dataset in memory")), alone: 5, times: 1,
		},
		{
			name:  "and are sent alone if the server was a master",
			spoil: failed(answer("READONLY You can't write against a read only replica.")), alone: 5, times: 1,
		},
		{
			name:  "and are sent alone, whole, if the server forgot the script",
			spoil: failed(answer("NOSCRIPT No matching script.")), alone: 5, times: 1,
		},
		{
			name: "and those alone are sent again of which the answer is lost", alone: 2, times: 2,
			spoil: func(send func() error, cmds []redis.Cmder) error {
				_ = send()
				for _, cmd := range cmds[3:] {
					cmd.SetErr(io.EOF)
				}
				return io.EOF
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, g := openSharing(t)
			h.wait, g.spoil = time.Hour, c.spoil
			first := h.fill(t, g)
			words := []string{"a", "b", "refused", "d", "e"}
			calls := h.queue(t, words...)
			close(g.open)
			for _, call := range first {
				if e := <-call; e.err != nil || e.v != "first" {
					t.Errorf("answered %v, %v", e.v, e.err)
				}
			}
			for i, call := range calls {
				e := <-call
				if refused := words[i] == "refused"; refused != (e.err != nil) || !refused && e.v != words[i] {
					t.Errorf("%s was answered %v, %v", words[i], e.v, e.err)
				}
			}
			if g.requests.Load() != 1 || g.together.Load() != 5 || g.alone.Load()-sendersMax != c.alone {
				t.Errorf("%d went together in %d requests and %d alone, want 5 in 1 and %d", g.together.Load(),
					g.requests.Load(),
					g.alone.Load()-sendersMax, c.alone)
			}
			if times, err := h.scripts.rdb.Get(t.Context(), "k:e").Int64(); err != nil || times != c.times {
				t.Errorf("one was carried out %d times (%v), want %d", times, err, c.times)
			}
		})
	}
}

func TestACallThatIsGivenUpLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	h, g := openSharing(t)
	h.wait = time.Hour
	h.fill(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	given := h.echo(ctx, "given up")
	harness.Eventually(t, harness.Wait, "it waits", harness.True(func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.waiting) == 1
	}, "it does not"))
	other := h.echo(t.Context(), "other")
	cancel()
	if e := <-given; !errors.Is(e.err, context.Canceled) {
		t.Errorf("the one that was given up: %v, %v", e.v, e.err)
	}
	close(g.open)
	if e := <-other; e.err != nil || e.v != "other" {
		t.Errorf("the other one: %v, %v", e.v, e.err)
	}
	if n, err := h.scripts.rdb.Exists(t.Context(), "k:given up").Result(); err != nil || n != 0 {
		t.Errorf("the one that was given up was sent nevertheless (%v)", err)
	}
}

// noticed is a context that says when somebody has found it to be over.
type noticed struct {
	context.Context
	once  sync.Once
	asked chan struct{}
}

func (c *noticed) Err() error {
	err := c.Context.Err()
	if err != nil {
		c.once.Do(func() { close(c.asked) })
	}
	return err
}

// What a call has changed is for its caller to follow: a wake that it hands out, say, which would wait for
// its deadline otherwise.
func TestACallThatIsUnderWayIsAnsweredThoughItsCallerStops(t *testing.T) {
	t.Parallel()
	h, g := openSharing(t)
	h.wait = time.Hour
	under, release := make(chan struct{}), make(chan struct{})
	g.spoil = func(send func() error, _ []redis.Cmder) error {
		close(under)
		<-release
		return send()
	}
	h.fill(t, g)
	parent, cancel := context.WithCancel(t.Context())
	ctx := &noticed{Context: parent, asked: make(chan struct{})}
	call := h.echo(ctx, "a")
	harness.Eventually(t, harness.Wait, "it waits", harness.True(func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.waiting) == 1
	}, "it does not"))
	close(g.open)
	<-under
	cancel()
	<-ctx.asked // the call has heard of it
	close(release)
	if e := <-call; e.err != nil || e.v != "a" {
		t.Errorf("answered %v, %v", e.v, e.err)
	}
}

func TestCallsDoNotWaitForRequestsThatHang(t *testing.T) {
	t.Parallel()
	h, g := openSharing(t)
	first := h.fill(t, g)
	if e := <-h.echo(t.Context(), "next"); e.err != nil || e.v != "next" {
		t.Errorf("the next one: %v, %v", e.v, e.err)
	}
	close(g.open)
	for _, call := range first {
		<-call
	}
	harness.Eventually(t, harness.Wait, "nothing is under way any more", harness.True(func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.senders == 0 && len(h.waiting) == 0
	}, "something is"))
	if alone := g.alone.Load(); alone != sendersMax {
		t.Errorf("%d went alone", alone)
	}
	if e := <-h.echo(t.Context(), "last"); e.err != nil || g.alone.Load() != sendersMax+1 {
		t.Errorf("the last one, which was the only one: %v, %d went alone", e.err, g.alone.Load())
	}
}

func TestCallsForAClusterGoEachForItself(t *testing.T) {
	client, closeClient, err := Connect("redis+cluster://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeClient() }()
	if newSharing(&scriptClient{rdb: client}) != nil {
		t.Error("calls for a node that is dead would hold up those for others")
	}
}

// expiring is a context whose deadline comes when a test says so.
type expiring struct {
	context.Context
	over chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.over }

func (e expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestAStopWaitsForRequestsThatNoCallerWaitsFor(t *testing.T) {
	t.Parallel()
	h, g := openSharing(t)
	h.wait = time.Hour
	under, release := make(chan struct{}), make(chan struct{})
	g.spoil = func(send func() error, _ []redis.Cmder) error {
		close(under)
		<-release
		return send()
	}
	first := h.fill(t, g)
	deadline := expiring{Context: t.Context(), over: make(chan struct{})}
	abandoned := h.echo(deadline, "abandoned")
	harness.Eventually(t, harness.Wait, "it waits", harness.True(func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.waiting) == 1
	}, "it does not"))
	stopped := make(chan struct{})
	go func() {
		h.stop()
		close(stopped)
	}()
	<-under // what waits goes at once, whatever is under way
	close(deadline.over)
	if e := <-abandoned; !errors.Is(e.err, context.DeadlineExceeded) {
		t.Errorf("answered %v, %v", e.v, e.err)
	}
	select {
	case <-stopped:
		t.Error("it has stopped while a request is under way")
	default:
	}
	close(g.open)
	for _, call := range first {
		<-call
	}
	if e := <-h.echo(t.Context(), "late"); e.err != nil || e.v != "late" {
		t.Errorf("a call after it was stopped: %v, %v", e.v, e.err)
	}
	select {
	case <-stopped:
		t.Error("it has stopped while a request is under way")
	default:
	}
	close(release)
	<-stopped
	if requests, together := g.requests.Load(), g.together.Load(); requests != 1 || together != 1 {
		t.Errorf("%d calls went together in %d requests", together, requests)
	}
}
