package tailer

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"
)

const (
	// roomMin and roomMax bound how many HEADs the loops have under way at a time.
	roomMin, roomMax = 2, 256
	// seatTime is after how long a HEAD that is under way makes room for another: those of streams that are broken must not keep the
	// others waiting.
	seatTime = 100 * time.Millisecond
	// roomSlack is what HEADs may take beyond twice the usual before they count as ones that had to wait.
	roomSlack = time.Millisecond
	// roomRound is how many answers are judged together, at least.
	roomRound = 16
	// noAnswer is for a HEAD that says nothing of how fast upstream is.
	noAnswer = time.Duration(-1)
)

// room bounds how many HEADs of the loops are under way to what upstream can answer without making anybody wait. When tens of
// thousands of streams have to be looked at (a new subscription, the partitions of a replica that died), that takes as long with few
// at a time as with many, but the streams that are read and written meanwhile do not stand in line behind them.
//
// The bound grows while answers come as fast as they ever do, and shrinks when they take longer than twice that. What counts is the
// mean of a round of answers: some streams are answered quicker than others without a line (from a cache, because they are not there,
// by a request that was under way already), and the others must not be taken for ones that wait.
type room struct {
	mu    sync.Mutex
	bound float64
	taken int
	// usual is what HEADs take in the mean that do not wait; 0 before the first round.
	usual time.Duration
	// of is how many answers the present round has, n how many of them have come, and sum what those took.
	of, n int
	sum   time.Duration
	// waiting are those without a seat: chan struct{}.
	waiting *list.List
}

func newRoom() *room { return &room{bound: roomMin, of: roomRound, waiting: list.New()} }

// enter waits for a seat. leave must be called with how long the answer took, or noAnswer.
func (r *room) enter(ctx context.Context) (leave func(took time.Duration), err error) {
	r.mu.Lock()
	if r.taken < int(r.bound) && r.waiting.Len() == 0 {
		r.taken++
		r.mu.Unlock()
		return r.seat(), nil
	}
	turn := make(chan struct{})
	e := r.waiting.PushBack(turn)
	r.mu.Unlock()
	select {
	case <-turn:
		return r.seat(), nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-turn: // both at once
		r.rise()
	default:
		r.waiting.Remove(e)
	}
	return nil, ctx.Err()
}

// seat is one that was taken; it is given up once, by its holder or by the time.
func (r *room) seat() (leave func(took time.Duration)) {
	giveUp := sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.rise()
	})
	timer := time.AfterFunc(seatTime, giveUp)
	return func(took time.Duration) {
		timer.Stop()
		if took >= 0 {
			r.learn(took)
		}
		giveUp()
	}
}

// rise frees a seat and fills those that are free. r.mu is held.
func (r *room) rise() {
	r.taken--
	for r.taken < int(r.bound) && r.waiting.Len() > 0 {
		r.taken++
		close(r.waiting.Remove(r.waiting.Front()).(chan struct{}))
	}
}

// learn moves the bound by what an answer took.
func (r *room) learn(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.usual > 0 {
		took = min(took, 4*r.usual+2*roomSlack) // a few that hang say nothing of the others
	}
	r.sum += took
	if r.n++; r.n < r.of {
		return
	}
	mean := r.sum / time.Duration(r.n)
	late := r.usual > 0 && mean > 2*r.usual+roomSlack
	switch {
	case !late:
		r.bound = min(roomMax, math.Sqrt(r.bound*r.bound+2*float64(r.n))) // by 1/bound for each answer
		if r.usual == 0 || mean < r.usual {
			r.usual = max(1, mean)
		}
	case r.bound > roomMin:
		r.bound = max(roomMin, r.bound/2)
	default: // no crowd of ours is the reason: upstream has become slower
		r.usual = mean
	}
	// Those that are under way have been in the crowd that was judged now.
	r.of, r.n, r.sum = max(roomRound, r.taken), 0, 0
}
