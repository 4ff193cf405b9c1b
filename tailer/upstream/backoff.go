package upstream

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is a delay that grows by half each time, between two bounds.
type Backoff struct {
	Min, Max time.Duration
	now      time.Duration
}

// Next returns the next delay.
func (b *Backoff) Next() time.Duration {
	b.now = min(max(b.now*3/2, b.Min), b.Max)
	return b.now
}

// Reset begins again at Min.
func (b *Backoff) Reset() { b.now = 0 }

// Jitter is a duration between three quarters of d and d: what waits for it waits no longer than a setting says.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d*3/4 + rand.N(d/4+1)
}

// Sleep waits for d and says whether the context is still alive.
func Sleep(ctx context.Context, d time.Duration) bool { return SleepOr(ctx, d, nil) }

// SleepOr is Sleep that a signal on cut ends early.
func SleepOr(ctx context.Context, d time.Duration, cut <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-cut:
	}
	return ctx.Err() == nil
}
