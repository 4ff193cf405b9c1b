package tailer

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
)

// sleep waits for d and says whether the context is still alive.
func sleep(ctx context.Context, d time.Duration) bool { return sleepOr(ctx, d, nil) }

// sleepOr is sleep that a signal on cut ends early.
func sleepOr(ctx context.Context, d time.Duration, cut <-chan struct{}) bool {
	return sleepOrEither(ctx, d, cut, nil)
}

// sleepOrEither is sleepOr with two signals.
func sleepOrEither(ctx context.Context, d time.Duration, one, other <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-one:
	case <-other:
	}
	return ctx.Err() == nil
}

// jitter is a duration between three quarters of d and d: what waits for it waits no longer than a setting says.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d*3/4 + rand.N(d/4+1)
}

// growing is a delay that grows by half each time, between two bounds.
type growing struct{ least, most, now time.Duration }

func (g *growing) next() time.Duration {
	g.now = min(max(g.now*3/2, g.least), g.most)
	return g.now
}

func (g *growing) reset() { g.now = 0 }

// insist repeats a call of the store until it succeeds; the error is the context's. While the store is away there is
// nothing better to do with what was seen than to hold on to it. what and of are for the log.
func (t *Tailer) insist(ctx context.Context, what string, of zap.Field, call func() error) error {
	delay := growing{least: 50 * time.Millisecond, most: 2 * time.Second}
	for failed := false; ; failed = true {
		err := call()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !failed:
			if times, log := t.untold.Happened(time.Now()); log {
				t.log.Warn("redis did not take what was seen; it is told again", zap.String("what", what), of, zap.Int("times", times), zap.Error(err))
			}
		}
		if !sleep(ctx, jitter(delay.next())) {
			return ctx.Err()
		}
	}
}

// complaint logs that something fails when it begins to, and that it works again, not each time between.
type complaint struct {
	log     *zap.Logger
	what    string
	failing bool
}

// about takes in how it went and passes the error on.
func (c *complaint) about(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
	case err != nil && !c.failing:
		c.log.Warn(c.what+" failed; it is tried again", zap.Error(err))
		c.failing = true
	case err == nil && c.failing:
		c.log.Info(c.what + " works again")
		c.failing = false
	}
	return err
}
