package upstream

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// limitMin and limitMax bound how many HEADs the loops have under way at a time.
	limitMin, limitMax = 2, 256
	// slotTime is after how long a HEAD that is under way makes room for another: those of streams that are broken
	// must not keep the others waiting.
	slotTime = 100 * time.Millisecond
	// limitSlack is what HEADs may take beyond twice the usual before they count as ones that had to wait.
	limitSlack = time.Millisecond
	// limitRound is how many answers are judged together, at least.
	limitRound = 16
	// NoAnswer is for a HEAD that says nothing of how fast upstream is.
	NoAnswer = time.Duration(-1)
)

// Limiter bounds how many HEADs of the loops are under way to what upstream can answer without making other requests
// wait. When tens of thousands of streams have to be looked at (a new subscription, the partitions of a replica that
// died), that takes as long with few at a time as with many, but with few the streams that are read and written
// meanwhile do not queue behind them.
//
// The bound grows while answers come as fast as they ever do, and shrinks when they take longer than twice that. What
// counts is the mean of a round of answers: some streams are answered quicker than others without a queue (from a
// cache, because they are not there, by a request that was under way already), and the others must not be taken for
// ones that wait.
type Limiter struct {
	// slots are limitMax, of which those that are not open are held back.
	slots *semaphore.Weighted

	mu    sync.Mutex
	bound float64
	// open is how many slots are free or taken: the bound, once enough have been given back.
	open, taken int
	// usual is the mean of what HEADs take that do not wait; 0 before the first round.
	usual time.Duration
	// of is how many answers the present round has, n how many of them have come, and sum what those took.
	of, n int
	sum   time.Duration
}

// NewLimiter returns a Limiter that lets few through until it has learned.
func NewLimiter() *Limiter {
	l := &Limiter{slots: semaphore.NewWeighted(limitMax), bound: limitMin, open: limitMin, of: limitRound}
	l.slots.TryAcquire(limitMax - limitMin)
	return l
}

// InUse is how many are under way.
func (l *Limiter) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// Acquire waits for a slot, which its holder gives back, or the end of slotTime. release must be called with how long
// the answer took, or NoAnswer.
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

// giveBack gives a slot back, and opens as many as the bound allows. Beyond the bound the slot is held back.
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

// learn moves the bound by what an answer took.
func (l *Limiter) learn(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usual > 0 {
		took = min(took, 4*l.usual+2*limitSlack) // a few that hang say nothing of the others
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
	default: // our own HEADs are not the reason: upstream has become slower
		l.usual = mean
	}
	// The HEADs that are under way have been part of the load that was judged now.
	l.of, l.n, l.sum = max(limitRound, l.taken), 0, 0
}
