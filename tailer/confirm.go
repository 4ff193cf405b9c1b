package tailer

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"reveille/fsm"
)

const (
	// confirmMax is how many streams may wait to be confirmed, confirmLinks how many of those that were known before; those beyond are not.
	confirmMax, confirmLinks = 100_000, 50_000
	// confirmWidth is how many are looked at at a time, confirmEvery how often those whose time has come.
	confirmWidth, confirmEvery = 32, 500 * time.Millisecond
	// lossSlack is by how much the clocks that a loss and what was lost are timed by may differ.
	lossSlack = 30 * time.Second
)

// confirms looks again at streams that were made known, and at links that were made, a moment ago. A store that crashes or fails over may
// lose its latest changes and keep quiet about it: until the stream is in the memory of whoever watches it, only the one who linked it
// can know.
type confirms struct {
	t *Tailer

	mu sync.Mutex
	// queue is in the order in which they are due.
	queue []confirm
}

type confirm struct {
	path string
	// known is true if the stream was known before.
	known bool
	// links are those that were made.
	links []madeLink
	// made is when that began.
	made time.Time
	due  time.Time
}

// madeLink is a consumer that was made: whose, and where it began.
type madeLink struct {
	sub   subscriptionKey
	acked fsm.Offset
}

// add has something confirmed after a while.
func (c *confirms) add(d confirm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) >= confirmMax || d.known && len(c.queue) >= confirmLinks {
		return
	}
	d.due = time.Now().Add(c.t.cfg.Confirm)
	c.queue = append(c.queue, d)
}

func (c *confirms) take(now time.Time) (due []confirm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 && !now.Before(c.queue[0].due) {
		due = append(due, c.queue[0])
		c.queue = c.queue[1:]
	}
	return due
}

// Run confirms until the context ends.
func (c *confirms) Run(ctx context.Context) error {
	for sleep(ctx, min(confirmEvery, c.t.cfg.Confirm)) {
		var g errgroup.Group
		g.SetLimit(confirmWidth)
		losses := map[int]func() (time.Time, error){}
		for _, d := range c.take(time.Now()) {
			home := c.t.store.PartitionOf(d.path)
			if losses[home] == nil {
				losses[home] = sync.OnceValues(func() (time.Time, error) { return c.t.lostAt(ctx, d.path) })
			}
			lostAt := losses[home]
			g.Go(func() error {
				if err := c.t.confirm(ctx, d, lostAt); err != nil && ctx.Err() == nil {
					c.t.log.Debug("what was linked could not be looked for; it is looked for again", zap.String("stream", d.path), zap.Error(err))
					c.add(d)
				}
				return nil
			})
		}
		_ = g.Wait()
	}
	return nil
}

// lostAt is when the store may have lost its latest changes about a stream for the last time; zero if it never has.
func (t *Tailer) lostAt(ctx context.Context, path string) (time.Time, error) {
	ago, lost, err := t.store.LostAgo(ctx, path)
	if err != nil || !lost {
		return time.Time{}, err
	}
	return time.Now().Add(-ago), nil
}

// confirm makes a stream known again, or links that were made again, if the store has lost them. A stream that it knows may lack a link
// all the same: one that was known before. Made again it begins where it began, and one that is there stays as it is.
func (t *Tailer) confirm(ctx context.Context, c confirm, lostAt func() (time.Time, error)) error {
	at, err := lostAt()
	if err != nil {
		return err
	}
	lost := at.Add(lossSlack).After(c.made)
	if c.known && !lost {
		return nil
	}
	known, found, err := t.store.Known(ctx, c.path)
	switch {
	case err != nil:
		return err
	case !found || known.Awaited:
		if !t.linked.Contains(c.path) {
			return nil // deleted since, or dealt with already
		}
		return t.forgotten(ctx, c.path)
	case !lost:
		return nil
	}
	// What is made again may be lost again.
	again := confirm{path: c.path, known: true, made: time.Now()}
	defer func() {
		if len(again.links) > 0 {
			t.confirms.add(again)
		}
	}()
	for _, l := range c.links {
		sub, ok := t.store.Catalog().Get(l.sub.id)
		if !ok || keyOf(sub) != l.sub {
			continue
		}
		// Whoever watches it looks for itself how far the stream is by now.
		s := telling(c.path, l.acked)
		o, err := t.store.Link(ctx, sub, c.path, l.acked, l.acked)
		if err != nil {
			return err
		}
		if t.settle(s, o); o.Linked > 0 {
			again.links = append(again.links, l)
			t.watches.watch(t.store.PartitionOf(c.path), c.path)
			t.watches.doubt(c.path)
		}
	}
	return nil
}
