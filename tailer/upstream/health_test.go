package upstream

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

func TestThoseWhoWaitedForAnUpstreamReturnSpreadOverAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, spread = 400, time.Second
		pause := Backoff{Min: time.Minute, Max: time.Minute}
		h := (&Client{cfg: Config{Logger: zap.NewNop()}}).NewHealth(pause, spread, func() {})
		for i := range DownAfter {
			h.Report(fmt.Sprint("/", i), &net.OpError{Op: "read", Err: errors.New("broken")})
		}
		var mu sync.Mutex
		var entered []time.Time
		var all sync.WaitGroup
		for i := range streams {
			all.Go(func() {
				done, probes, err := h.Enter(t.Context(), fmt.Sprint("/", i), true)
				if err != nil {
					t.Error(err)
					return
				}
				defer done(nil)
				if !probes {
					mu.Lock()
					defer mu.Unlock()
					entered = append(entered, time.Now())
				}
			})
		}
		synctest.Wait()
		if len(entered) > 0 {
			t.Errorf("%d asked while it was down", len(entered))
		}
		back := time.Now()
		h.Report("/0", nil)
		all.Wait()
		slices.SortFunc(entered, time.Time.Compare)
		if len(entered) != streams-1 || entered[len(entered)-1].Sub(back) > spread {
			t.Errorf("%d returned, the last after %s", len(entered), entered[len(entered)-1].Sub(back))
		}
		const part, most = spread / 10, streams * 2 / 5
		for i := most; i < len(entered); i++ {
			if entered[i].Sub(entered[i-most]) <= part {
				t.Fatalf("more than %d returned within %s", most, part)
			}
		}
	})
}
