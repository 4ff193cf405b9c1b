package upstream

import (
	"sync"
	"testing"
	"testing/synctest"
)

// No wait needs no timer: the race detector does not bear timers that many goroutines of one bubble have due at once.
// In go1.26 it ends the whole process.
func TestNoWaitSetsNoTimer(t *testing.T) {
	t.Parallel()
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var wg sync.WaitGroup
			for range 32 {
				wg.Go(func() {
					for range 200 {
						Sleep(t.Context(), 0)
					}
				})
			}
			wg.Wait()
		})
	}
}
