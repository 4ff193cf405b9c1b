package tailer

import (
	"container/list"
	"context"
	"sync"
	"time"
)

const (
	// roomMin and roomMax bound how many HEADs the loops have under way at a time.
	roomMin, roomMax = 2, 256
	// seatTime is after how long a HEAD that is under way makes room for another: those of streams that are broken must not keep the
	// others waiting.
	seatTime = 100 * time.Millisecond
	// roomSlack is what a HEAD may take beyond twice the usual before it counts as one that had to wait.
	roomSlack = time.Millisecond
	// noAnswer is for a HEAD that says nothing of how fast upstream is.
	noAnswer = time.Duration(-1)
)

// room bounds how many HEADs of the loops are under way to what upstream can answer without making anybody wait. When tens of
// thousands of streams have to be looked at (a new subscription, the partitions of a replica that died), that takes as long with few
// at a time as with many, but the streams that are read and written meanwhile do not stand in line behind them.
//
// The bound grows while answers come as fast as they ever do, and shrinks when they take longer than twice that.
type room struct {
	mu    sync.Mutex
	bound float64
	taken int
	// usual is what a HEAD takes that does not wait.
	usual   time.Duration
	waiting *list.List // of chan struct{}
}

func newRoom() *room { return &room{bound: 4 * roomMin, waiting: list.New()} }

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
	if r.usual == 0 || took < r.usual {
		r.usual = took
	}
	switch {
	case took <= 2*r.usual+roomSlack:
		r.bound = min(roomMax, r.bound+1/r.bound)
	case r.bound > roomMin:
		r.bound = max(roomMin, r.bound*0.97)
	default: // no crowd of ours is the reason: upstream has become slower
		r.usual += r.usual/64 + 1
	}
}
