package tailer

import (
	"context"
	"time"

	"go.uber.org/zap"

	"reveille/tailer/upstream"
)

// insist repeats a call of the store until it succeeds; the error is the context's. While the store is away there is
// nothing better to do with what was seen than to hold on to it. what and of are for the log.
func (t *Tailer) insist(ctx context.Context, what string, of zap.Field, call func() error) error {
	delay := upstream.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}
	for failed := false; ; failed = true {
		err := call()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !failed:
			if times, log := t.untold.Happened(time.Now()); log {
				t.log.Warn("redis did not take what was seen; it is told again", zap.String("what", what), of,
					zap.Int("times", times), zap.Error(err))
			}
		}
		if !upstream.Sleep(ctx, upstream.Jitter(delay.Next())) {
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
