package harness

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// pollEvery is the time between two looks at a condition. A look costs little, and the pause adds little to a test's
// time.
const pollEvery = 5 * time.Millisecond

// Wait is the time that Eventually allows where a test has no reason to name another. It is far more than anything
// takes, so that a slow machine fails no test. If the condition comes true, it costs nothing.
const Wait = 2 * time.Minute

// Eventually waits until cond returns nil and fails the test if that takes longer than within. cond's last error says
// what was missing.
func Eventually(t testing.TB, within time.Duration, what string, cond func() error) {
	t.Helper()
	if err := Poll(within, cond); err != nil {
		t.Fatalf("%s: not within %s: %v", what, within, err)
	}
}

// Progress waits until left returns 0. It fails the test if the number does not shrink within Wait. Use it for work
// whose time grows with its amount.
func Progress(t testing.TB, what string, left func() (int, error)) {
	t.Helper()
	least := math.MaxInt
	for least > 0 {
		Eventually(t, Wait, what, func() error {
			now, err := left()
			if err == nil && now >= least {
				err = fmt.Errorf("%d are left, as before", now)
			}
			if err == nil {
				least = now
			}
			return err
		})
	}
}

// Never fails the test if cond returns nil at any moment of a span. Use it for what must not happen, which no signal
// can tell.
func Never(t testing.TB, during time.Duration, what string, cond func() error) {
	t.Helper()
	if Poll(during, cond) == nil {
		t.Fatalf("%s: it happened", what)
	}
}

// Poll waits until cond returns nil. If that takes longer than within, it returns cond's last error.
func Poll(within time.Duration, cond func() error) error {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-deadline.C:
			return err
		case <-tick.C:
		}
	}
}

// True turns a condition into one for Eventually. The message is the error while the condition is not met.
func True(cond func() bool, format string, args ...any) func() error {
	return func() error {
		if cond() {
			return nil
		}
		return fmt.Errorf(format, args...)
	}
}
