package dispatcher

import (
	"context"
	"time"

	"reveille/fsm/bell"
)

const (
	// dueBatch is how many deadlines of a partition are acted on in one call.
	dueBatch = 100
	// dueFloor is the least time between two looks at the deadlines.
	dueFloor = 5 * time.Millisecond
	// dueRounds bounds how often one look goes round the partitions whose batches stay full. Then the other partitions
	// get a look as well.
	dueRounds = 100
	// dueErrors is how many calls may fail before one look gives up: the others would fail as well.
	dueErrors = 3
	// dueBackoffMax is the longest pause while the store is not available.
	dueBackoffMax = time.Second
)

// runTimers acts on deadlines: retries, the waking timeout, the liveness timeout and removals.
func (d *Dispatcher) runTimers(ctx context.Context) {
	pause, first := d.cfg.DueInterval, 0
	for bell.Sleep(ctx, pause) {
		next, err := d.tick(ctx, first)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.noteStore(err)
			pause = min(max(2*pause, d.cfg.DueInterval), dueBackoffMax)
		default:
			d.outage.over()
			pause = next
		}
		first++ // another partition comes first each time, so that a broken one does not block the others
	}
}

// tick acts on every passed deadline of the owned partitions, and returns the time until the next look.
func (d *Dispatcher) tick(ctx context.Context, first int) (time.Duration, error) {
	owned := d.cfg.Store.Ownership().Partitions()
	next, failure := d.cfg.Store.NextDue(ctx, owned)
	if next == nil && failure != nil {
		return 0, failure
	}
	pause := d.cfg.DueInterval
	var due []int
	for i := range next {
		at := (first + i) % len(next)
		switch {
		case next[at] == 0:
			due = append(due, owned[at])
		case next[at] > 0:
			pause = min(pause, next[at])
		}
	}
	errs := 0
	for range dueRounds {
		if len(due) == 0 {
			break
		}
		still := due[:0]
		for _, p := range due {
			out, n, err := d.cfg.Store.Due(ctx, p, dueBatch)
			if err != nil {
				failure = err
				if errs++; errs >= dueErrors || ctx.Err() != nil {
					return 0, failure
				}
				continue
			}
			d.follow(out)
			if n >= dueBatch {
				still = append(still, p)
			}
		}
		due = still
	}
	if len(due) > 0 {
		pause = 0
	}
	return max(pause, dueFloor), failure
}
