package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// sendersMax is how many requests are under way before further calls wait, so that they go together.
	sendersMax = 4
	// shareMax is how many calls one request has at most.
	shareMax = 64
	// shareWait is how long calls wait for earlier requests at most. Requests that take this long hang.
	shareWait = 20 * time.Millisecond
)

// sharing sends the script calls of many callers to a server together. Each request costs a connection, two system
// calls and switches between goroutines. A caller sends its call at once, unless sendersMax requests are under way.
// Later calls then go together in the next request.
//
// Going together is only a first try. If a call gets no answer, or an error that passes, its caller sends it alone,
// with the same arguments, as without sharing.
//
// The benchmark ("make bench", BENCH_BASE) had 64 streams whose workers answer with done. It reached 2,571 wakes a
// second with sharing and 2,120 without, where Redis also took a quarter more time. The client's own AutoPipeline
// (v9.23, experimental) reached two thirds of the rate with sharing.
type sharing struct {
	scripts *scriptClient
	// wait is shareWait, except in tests.
	wait time.Duration

	// requests are the requests that no caller makes itself. The method stop waits for them.
	requests sync.WaitGroup

	mu      sync.Mutex
	senders int
	waiting []*sharedCall
	// stopped is true once every call goes alone.
	stopped bool
	// late fires when waiting calls have waited too long.
	late *time.Timer
}

// sharedCall is a call that goes together with others.
type sharedCall struct {
	cmd *redis.Cmd
	// answered is closed when cmd has its answer or its error. Until then, the caller must not touch cmd.
	answered chan struct{}
}

// newSharing returns nil for a client of several servers: a server that is slow or dead must not delay calls to
// another.
func newSharing(scripts *scriptClient) *sharing {
	if _, ok := scripts.rdb.(*redis.Client); !ok {
		return nil
	}
	h := &sharing{scripts: scripts, wait: shareWait}
	h.late = time.AfterFunc(time.Hour, h.flush)
	h.late.Stop()
	return h
}

// once is a command that the client does not repeat by itself. It would also repeat the commands of the same request
// that were answered.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// run makes a call: alone, or together with other calls.
func (h *sharing) run(ctx context.Context, call scriptCall) (any, error) {
	h.mu.Lock()
	if h.senders < sendersMax || h.stopped {
		h.senders++
		h.mu.Unlock()
		defer h.sent()
		return h.scripts.call(ctx, call)
	}
	c := &sharedCall{cmd: h.scripts.waysTo(call.script)[0].of(ctx, call), answered: make(chan struct{})}
	if h.waiting = append(h.waiting, c); len(h.waiting) == 1 {
		h.late.Reset(h.wait)
	}
	h.mu.Unlock()
	select {
	case <-c.answered:
	case <-ctx.Done():
		if h.forget(c) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, ctx.Err()
		}
		// A call that goes alone is not cut off either: its caller must follow what it has changed.
		<-c.answered
	}
	v, err := c.cmd.Result()
	var reply redis.Error
	if err == nil || errors.As(err, &reply) && !passes(reply.Error()) && !h.scripts.lacks(err) {
		return v, err
	}
	ctx, cancel := context.WithDeadline(ctx, call.began.Add(h.scripts.limits.call))
	defer cancel()
	return h.scripts.call(ctx, call)
}

// forget drops a call whose caller no longer waits. It returns false if the call is under way.
func (h *sharing) forget(c *sharedCall) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := slices.Index(h.waiting, c)
	if at < 0 {
		return false
	}
	h.waiting = slices.Delete(h.waiting, at, at+1)
	return true
}

// stop makes each call go alone from now on. It returns when the calls that went together are answered.
func (h *sharing) stop() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.flush()
	h.requests.Wait()
}

// sent ends a caller's request. If calls wait, the next request begins in a goroutine of its own: the caller does not
// wait for it.
func (h *sharing) sent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.senders--
	h.begin()
}

// flush sends the waiting calls, however many requests are under way.
func (h *sharing) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begin()
}

// begin begins a request if calls wait. The caller holds h.mu.
func (h *sharing) begin() {
	if calls := h.take(); calls != nil {
		h.senders++
		h.requests.Go(func() { h.send(calls) })
	}
}

// next takes the calls for the request after a finished one; nil if none wait.
func (h *sharing) next() []*sharedCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.take()
	if calls == nil {
		h.senders--
	}
	return calls
}

// take returns calls that go together. The caller holds h.mu.
func (h *sharing) take() []*sharedCall {
	n := min(len(h.waiting), shareMax)
	calls := h.waiting[:n:n]
	if h.waiting = h.waiting[n:]; len(h.waiting) > 0 {
		h.late.Reset(h.wait)
	} else {
		h.waiting = nil
		h.late.Stop()
	}
	if n == 0 {
		return nil
	}
	return calls
}

// send makes requests until no calls wait. No caller's context ends a request, but the client bounds it (bounded).
func (h *sharing) send(calls []*sharedCall) {
	for ctx := context.Background(); calls != nil; calls = h.next() {
		pipe := h.scripts.rdb.Pipeline()
		for _, c := range calls {
			_ = pipe.Process(ctx, once{c.cmd})
		}
		_, _ = pipe.Exec(ctx) // each call has its own error
		for _, c := range calls {
			close(c.answered)
		}
	}
}
