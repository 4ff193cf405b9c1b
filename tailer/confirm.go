package tailer

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// confirmMax is how many streams may wait to be confirmed; those beyond are not.
	confirmMax = 100_000
	// confirmEvery is how often those whose time has come are looked at.
	confirmEvery = 500 * time.Millisecond
)

// confirms looks again at streams that were linked a moment ago. A store that crashes or fails over may lose its latest changes and
// keep quiet about it: until the stream is in the memory of whoever watches it, only the one who linked it can know.
type confirms struct {
	t *Tailer

	mu sync.Mutex
	// queue is in the order of their times.
	queue []confirm
}

type confirm struct {
	path string
	due  time.Time
}

// add has a stream confirmed after a while.
func (c *confirms) add(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) < confirmMax {
		c.queue = append(c.queue, confirm{path, time.Now().Add(c.t.cfg.Confirm)})
	}
}

func (c *confirms) take(now time.Time) (paths []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 && !now.Before(c.queue[0].due) {
		paths = append(paths, c.queue[0].path)
		c.queue = c.queue[1:]
	}
	return paths
}

// Run confirms until the context ends.
func (c *confirms) Run(ctx context.Context) error {
	for sleep(ctx, min(confirmEvery, c.t.cfg.Confirm)) {
		for _, path := range c.take(time.Now()) {
			if c.t.linked.Contains(path) { // not deleted since
				_ = c.t.insist(ctx, "confirm", zap.String("stream", path), func() error { return c.t.forgotten(ctx, path) })
			}
		}
	}
	return nil
}
