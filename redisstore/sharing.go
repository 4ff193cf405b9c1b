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
	// sendersMax is how many requests are under way when further calls begin to wait, so as to go together.
	sendersMax = 4
	// shareMax is how many calls go together at most.
	shareMax = 64
	// shareWait is how long calls wait at most for the requests before them, which hang if they take that long.
	shareWait = 20 * time.Millisecond
)

// sharing has script calls of many callers go to a server together: each request costs a connection, two system calls
// and changes of goroutines. A call is sent at once, by its caller, unless sendersMax requests are under way; those
// that come then go with the next.
//
// Going together is a first try only. A call that was not answered then, or with an error that passes, is sent alone,
// with the same arguments, as it would have been without others.
//
// It earns its place: of 64 streams whose workers answer with done, 2,571 wakes a second came with it, 2,120 without,
// for which Redis took a quarter more time; and with the client's own AutoPipeline (v9.23, experimental) it was two
// thirds of what it was with this ("make bench", BENCH_BASE).
type sharing struct {
	client *redis.Client
	// wait is shareWait, except in tests.
	wait time.Duration
	// call bounds a call.
	call time.Duration

	// requests are those that no caller makes: stop waits for them.
	requests sync.WaitGroup

	mu      sync.Mutex
	senders int
	waiting []*sharedCall
	// stopped is true once every call goes alone.
	stopped bool
	// late fires when those that wait have waited for too long.
	late *time.Timer
}

// sharedCall is one that goes with others.
type sharedCall struct {
	cmd *redis.Cmd
	// answered is closed when cmd has its answer or its error; until then it is not the caller's.
	answered chan struct{}
}

// newSharing returns nil for a client of several servers: calls for one that is slow or dead must not
// hold up those for another.
func newSharing(rdb redis.UniversalClient, call time.Duration) *sharing {
	client, ok := rdb.(*redis.Client)
	if !ok {
		return nil
	}
	h := &sharing{client: client, wait: shareWait, call: call}
	h.late = time.AfterFunc(time.Hour, h.flush)
	h.late.Stop()
	return h
}

// once is a command that the client does not send again by itself: those that went with it and were
// answered would be, too.
type once struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// run calls a script.
func (h *sharing) run(ctx context.Context, sc *redis.Script, keys []string, args []any) (any, error) {
	began := time.Now()
	h.mu.Lock()
	if h.senders < sendersMax || h.stopped {
		h.senders++
		h.mu.Unlock()
		defer h.sent()
		return sc.Run(ctx, h.client, keys, args...).Result()
	}
	c := &sharedCall{cmd: evalSha(ctx, sc, keys, args), answered: make(chan struct{})}
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
		// A call that goes alone is not broken off either: what it has changed is for its caller to follow.
		<-c.answered
	}
	v, err := c.cmd.Result()
	var reply redis.Error
	if err == nil || errors.As(err, &reply) && !passes(reply.Error()) && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return v, err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(h.call))
	defer cancel()
	return sc.Run(ctx, h.client, keys, args...).Result()
}

// forget has a call not made for which nobody waits, unless it is under way.
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

func evalSha(ctx context.Context, sc *redis.Script, keys []string, args []any) *redis.Cmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", sc.Hash(), len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	return redis.NewCmd(ctx, append(words, args...)...)
}

// stop has each call go alone from now on. It returns when those that went together are answered.
func (h *sharing) stop() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.flush()
	h.requests.Wait()
}

// sent ends a caller's request. If calls wait, the next one begins, apart from the caller, who does not wait for it.
func (h *sharing) sent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.senders--
	h.begin()
}

// flush sends those that wait, whatever is under way.
func (h *sharing) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begin()
}

// begin begins a request if calls wait. h.mu is held.
func (h *sharing) begin() {
	if calls := h.take(); calls != nil {
		h.senders++
		h.requests.Go(func() { h.send(calls) })
	}
}

// next takes the calls for a request that follows on one that is over; nil if none wait.
func (h *sharing) next() []*sharedCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.take()
	if calls == nil {
		h.senders--
	}
	return calls
}

// take returns calls that go together. h.mu is held.
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

// send makes requests until no calls wait. No caller's context ends it: the client bounds each request (bounded).
func (h *sharing) send(calls []*sharedCall) {
	for ctx := context.Background(); calls != nil; calls = h.next() {
		pipe := h.client.Pipeline()
		for _, c := range calls {
			_ = pipe.Process(ctx, once{c.cmd})
		}
		_, _ = pipe.Exec(ctx) // each call has its own error
		for _, c := range calls {
			close(c.answered)
		}
	}
}
