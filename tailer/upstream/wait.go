package upstream

import (
	"context"
	"math/rand/v2"
	"sync"
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

// Reset starts again at Min.
func (b *Backoff) Reset() { b.now = 0 }

// Rate spaces events evenly in time.
type Rate struct {
	mu    sync.Mutex
	every time.Duration
	next  time.Time
}

// NewRate returns a Rate of so many events a second.
func NewRate(perSecond int) *Rate { return &Rate{every: time.Second / time.Duration(perSecond)} }

// Turn returns the time until the caller's turn.
func (r *Rate) Turn() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.next.Before(now) {
		r.next = now
	}
	d := r.next.Sub(now)
	r.next = r.next.Add(r.every)
	return d
}

// Jitter returns a duration between three quarters of d and d. So no wait is longer than its setting.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d*3/4 + rand.N(d/4+1)
}

// Sleep waits for d and says whether the context is still alive.
func Sleep(ctx context.Context, d time.Duration) bool { return SleepOr(ctx, d, nil) }

// SleepOr waits as Sleep does, but a ring on cut ends the wait.
func SleepOr(ctx context.Context, d time.Duration, cut <-chan struct{}) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-cut:
	}
	return ctx.Err() == nil
}
