package upstream

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"
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

// Limiter bounds how many HEADs of the loops are under way to what upstream can answer without making anybody wait.
// When tens of thousands of streams have to be looked at (a new subscription, the partitions of a replica that died),
// that takes as long with few at a time as with many, but the streams that are read and written meanwhile do not
// queue behind them.
//
// The bound grows while answers come as fast as they ever do, and shrinks when they take longer than twice that. What
// counts is the mean of a round of answers: some streams are answered quicker than others without a queue (from a
// cache, because they are not there, by a request that was under way already), and the others must not be taken for
// ones that wait.
type Limiter struct {
	mu    sync.Mutex
	bound float64
	taken int
	// usual is what HEADs take in the mean that do not wait; 0 before the first round.
	usual time.Duration
	// of is how many answers the present round has, n how many of them have come, and sum what those took.
	of, n int
	sum   time.Duration
	// waiting are those without a slot: chan struct{}.
	waiting *list.List
}

// NewLimiter returns a Limiter that lets few through until it has learned.
func NewLimiter() *Limiter { return &Limiter{bound: limitMin, of: limitRound, waiting: list.New()} }

// Bound is how many may be under way at a time now.
func (l *Limiter) Bound() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.bound)
}

// InUse is how many are under way.
func (l *Limiter) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// Acquire waits for a slot. release must be called with how long the answer took, or NoAnswer.
func (l *Limiter) Acquire(ctx context.Context) (release func(took time.Duration), err error) {
	l.mu.Lock()
	if l.taken < int(l.bound) && l.waiting.Len() == 0 {
		l.taken++
		l.mu.Unlock()
		return l.slot(), nil
	}
	turn := make(chan struct{})
	e := l.waiting.PushBack(turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return l.slot(), nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // both at once
		l.free()
	default:
		l.waiting.Remove(e)
	}
	return nil, ctx.Err()
}

// slot is one that was taken; it is given up once, by its holder or when slotTime is over.
func (l *Limiter) slot() (release func(took time.Duration)) {
	giveUp := sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.free()
	})
	timer := time.AfterFunc(slotTime, giveUp)
	return func(took time.Duration) {
		timer.Stop()
		if took >= 0 {
			l.learn(took)
		}
		giveUp()
	}
}

// free gives a slot back and hands out those that are free. l.mu is held.
func (l *Limiter) free() {
	l.taken--
	for l.taken < int(l.bound) && l.waiting.Len() > 0 {
		l.taken++
		close(l.waiting.Remove(l.waiting.Front()).(chan struct{}))
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
	default: // no crowd of ours is the reason: upstream has become slower
		l.usual = mean
	}
	// Those that are under way have been in the crowd that was judged now.
	l.of, l.n, l.sum = max(limitRound, l.taken), 0, 0
}
