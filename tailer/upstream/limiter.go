package upstream

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// limitMin and limitMax bound how many HEADs are under way at a time.
	limitMin, limitMax = 2, 256
	// slotTime is how long a HEAD under way keeps its slot from others. HEADs for broken streams must not delay the
	// rest.
	slotTime = 100 * time.Millisecond
	// limitSlack is the time beyond twice the usual that HEADs may take before they count as delayed.
	limitSlack = time.Millisecond
	// limitRound is how many answers are judged together, at least.
	limitRound = 16
	// NoAnswer stands for a HEAD that says nothing about upstream's speed.
	NoAnswer = time.Duration(-1)
)

// Limiter bounds how many HEADs are under way, so that upstream can answer them without delaying other requests. A new
// subscription, or the death of a replica, can make tens of thousands of HEADs due. That takes as long with few at a
// time as with many. With few, the streams that clients read and write meanwhile do not queue behind them.
//
// The bound grows while answers come as fast as ever. It shrinks when they take longer than twice that. What counts is
// the mean of a round of answers. Some answers come sooner, without a queue: from a cache, for a missing stream, or
// from a request under way. The other answers must not count as delayed because of them.
type Limiter struct {
	// slots has limitMax slots. Those that are not open are held back.
	slots *semaphore.Weighted

	mu    sync.Mutex
	bound float64
	// open is how many slots are free or taken. It is the bound, once enough slots are given back.
	open, taken int
	// usual is the mean time of HEADs that do not wait; 0 before the first round.
	usual time.Duration
	// of is how many answers this round has. n of them have come, and sum is the time that those took.
	of, n int
	sum   time.Duration
}

// NewLimiter returns a Limiter that lets few HEADs through until it has learned.
func NewLimiter() *Limiter {
	l := &Limiter{slots: semaphore.NewWeighted(limitMax), bound: limitMin, open: limitMin, of: limitRound}
	l.slots.TryAcquire(limitMax - limitMin)
	return l
}

// InUse returns how many slots are taken.
func (l *Limiter) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// Acquire waits for a slot. The slot is free again after release, or after slotTime. The caller must call release with
// the time that the answer took, or with NoAnswer.
func (l *Limiter) Acquire(ctx context.Context) (release func(took time.Duration), err error) {
	if err := l.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.taken++
	l.mu.Unlock()
	giveBack := sync.OnceFunc(l.giveBack)
	timer := time.AfterFunc(slotTime, giveBack)
	return func(took time.Duration) {
		timer.Stop()
		if took >= 0 {
			l.learn(took)
		}
		giveBack()
	}, nil
}

// giveBack gives a slot back, and opens as many as the bound allows. It holds back slots beyond the bound.
func (l *Limiter) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken--
	l.open--
	if n := int(l.bound) - l.open; n > 0 {
		l.open += n
		l.slots.Release(int64(n))
	}
}

// learn adjusts the bound to the time that an answer took.
func (l *Limiter) learn(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usual > 0 {
		took = min(took, 4*l.usual+2*limitSlack) // a few that hang say nothing about the others
	}
	l.sum += took
	if l.n++; l.n < l.of {
		return
	}
	mean := l.sum / time.Duration(l.n)
	late := l.usual > 0 && mean > 2*l.usual+limitSlack
	switch {
	case !late:
		l.bound = min(limitMax, math.Sqrt(l.bound*l.bound+2*float64(l.n))) // by 1/bound for each answer
		if l.usual == 0 || mean < l.usual {
			l.usual = max(1, mean)
		}
	case l.bound > limitMin:
		l.bound = max(limitMin, l.bound/2)
	default: // Reveille's HEADs are not the reason: upstream has become slower
		l.usual = mean
	}
	// The HEADs under way were part of the load that was just judged.
	l.of, l.n, l.sum = max(limitRound, l.taken), 0, 0
}
