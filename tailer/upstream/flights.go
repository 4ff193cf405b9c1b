package upstream

import (
	"context"
	"sync"

	"golang.org/x/sync/singleflight"

	"reveille/fsm"
)

// flights are requests for streams that callers share. A caller never gets the answer to a request that began before
// the call: the stream may have been deleted or made in between.
type flights struct {
	// waiting are requests that have not begun. Callers join them.
	waiting singleflight.Group

	mu sync.Mutex
	// last has, for each path, the end of the latest request that has begun or waits to begin.
	last map[string]chan struct{}
}

// join returns the answer to a request that begins after the call, or the error of ctx.
func (f *flights) join(
	ctx context.Context, path string, ask func() (fsm.StreamInfo, error),
) (fsm.StreamInfo, error) {
	flight := f.waiting.DoChan(path, func() (any, error) {
		over := f.turn(path)
		defer over()
		f.waiting.Forget(path) // a later caller needs a later request
		return ask()
	})
	select {
	case <-ctx.Done():
		return fsm.StreamInfo{}, ctx.Err()
	case res := <-flight:
		if res.Err != nil {
			return fsm.StreamInfo{}, res.Err
		}
		return res.Val.(fsm.StreamInfo), nil
	}
}

// turn waits for the end of the request before. The caller calls over at the end of its own request.
func (f *flights) turn(path string) (over func()) {
	mine := make(chan struct{})
	f.mu.Lock()
	if f.last == nil {
		f.last = map[string]chan struct{}{}
	}
	before := f.last[path]
	f.last[path] = mine
	f.mu.Unlock()
	if before != nil {
		<-before
	}
	return func() {
		close(mine)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.last[path] == mine {
			delete(f.last, path)
		}
	}
}
