package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crowd has n looks at a server that answers width of them at a time, each in d, and returns the most that queued
// there.
func crowd(t *testing.T, l *Limiter, n, width int, d time.Duration) (most int) {
	t.Helper()
	var mu sync.Mutex
	under := 0
	server := make(chan struct{}, width)
	var g sync.WaitGroup
	for range n {
		g.Go(func() {
			release, err := l.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			began := time.Now()
			mu.Lock()
			under++
			most = max(most, under)
			mu.Unlock()
			server <- struct{}{}
			time.Sleep(d)
			<-server
			mu.Lock()
			under--
			mu.Unlock()
			release(time.Since(began))
		})
	}
	g.Wait()
	return most
}

// isFree says whether all that are open can be had, and no more.
func (l *Limiter) isFree() bool {
	return l.taken == 0 && l.slots.TryAcquire(int64(l.open)) && !l.slots.TryAcquire(1)
}

func TestALimiterLetsThroughWhatUpstreamAnswersWithoutAQueue(t *testing.T) {
	for _, c := range []struct {
		name        string
		width       int
		each        time.Duration
		least, most int
	}{
		{"a server with one thread", 1, time.Millisecond, 2, 20},
		{"a server that is far away and wide", 1000, 20 * time.Millisecond, 100, limitMax},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLimiter()
				crowd(t, l, 10_000, c.width, c.each)
				if most := crowd(t, l, 1_000, c.width, c.each); most < c.least || most > c.most {
					t.Errorf("%d at a time, want %d to %d", most, c.least, c.most)
				}
				if !l.isFree() {
					t.Errorf("%d slots are taken of %d", l.taken, l.open)
				}
			})
		})
	}
}

func TestHEADsThatHangMakeRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter()
		for range limitMin {
			if _, err := l.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		release, err := l.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != slotTime {
			t.Errorf("it waited %s, want %s", took, slotTime)
		}
		release(time.Millisecond)
	})
}

func TestAHEADThatGivesUpWaitingTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter()
		var releases []func(time.Duration)
		for range limitMin {
			release, err := l.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		ctx, cancel := context.WithTimeout(t.Context(), slotTime/2)
		defer cancel()
		if _, err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v, want the context's error", err)
		}
		for _, release := range releases {
			release(time.Millisecond)
		}
		if !l.isFree() {
			t.Errorf("%d slots are taken of %d", l.taken, l.open)
		}
	})
}

func TestStreamsThatAreAnsweredQuickerDoNotHoldUpTheOthers(t *testing.T) {
	const quick, n = time.Millisecond, 5_000
	for _, c := range []struct {
		name   string
		quickN int // of ten
		slow   time.Duration
		most   time.Duration
	}{
		{"one in ten", 1, 30 * time.Millisecond, 15 * time.Second},
		{"half of them", 5, 30 * time.Millisecond, 15 * time.Second},
		{"nine in ten", 9, 30 * time.Millisecond, 15 * time.Second},
		{"one in ten, of a server far away", 1, 90 * time.Millisecond, 45 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLimiter()
				draw := rand.New(rand.NewPCG(1, 2))
				began := time.Now()
				var g sync.WaitGroup
				for range n {
					takes := c.slow
					if draw.IntN(10) < c.quickN {
						takes = quick
					}
					g.Go(func() {
						release, err := l.Acquire(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(takes)
						release(takes)
					})
				}
				g.Wait()
				if took := time.Since(began); took > c.most {
					t.Errorf("%d looks took %s, want at most %s", n, took, c.most)
				}
			})
		})
	}
}

func TestAnUpstreamThatBecomesSlowerIsAskedByManyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter()
		crowd(t, l, 5_000, 1000, time.Millisecond)
		crowd(t, l, 2_000, 1000, 50*time.Millisecond)
		began := time.Now()
		crowd(t, l, 5_000, 1000, 50*time.Millisecond)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("5000 looks took %s", took)
		}
	})
}
