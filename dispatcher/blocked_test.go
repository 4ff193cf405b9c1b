package dispatcher

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm"
)

// limiter lets ten deliveries a second through, as one more step. A delivery that must wait keeps its turn.
type limiter struct {
	mu    sync.Mutex
	next  time.Time
	turns map[string]time.Time // by consumer
}

func (l *limiter) allow(_ context.Context, a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	turn, has := l.turns[a.delivery.Consumer]
	if !has {
		turn = now
		if l.next.After(now) {
			turn = l.next
		}
		l.turns[a.delivery.Consumer], l.next = turn, turn.Add(time.Second/10)
	}
	if wait := turn.Sub(now); wait > 0 {
		return a.blocked("rate", wait)
	}
	return true
}

// TestWhatALimiterHasWaitCostsNothing has thousands of deliveries wait for a limit of ten a second. Each is parked
// once, and handed out once more when its turn has come. Until then it has no slot and no call.
func TestWhatALimiterHasWaitCostsNothing(t *testing.T) {
	const second = 10
	all := 10_000
	if testing.Short() {
		all = 1000
	}
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		store.setWaking(never)
		sub := store.addSubscription("s", hookURL)
		h := &hook{t: t, answer: func(_ int, w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, `{"done":true}`)
		}}
		limit := &limiter{turns: map[string]time.Time{}}
		f := start(t, store, func(c *Config) {
			c.WakingTimeout, c.parkAfter, c.DueInterval, c.ShutdownGrace = never, never, time.Second, time.Second
		}, without(t, h), func(d *Dispatcher) { d.stages.allow = append(d.stages.allow, limit.allow) })
		for n := range all {
			f.Deliver(store.event(sub, fmt.Sprintf("/s/%d", n), "0001"))
		}
		synctest.Wait()
		sent := len(h.attempts())
		if parked := store.called("Park"); sent == 0 || sent+parked != all {
			t.Errorf("%d were sent at once, and %d parked", sent, parked)
		}
		f.mu.Lock()
		waiting := len(f.slots.queued)
		f.mu.Unlock()
		c := store.consumer(fmt.Sprintf("s:%%2Fs%%2F%d", all-1))
		if waiting > 0 || c.Attempt != 0 || c.Held != "rate" {
			t.Errorf("%d wait in memory; the last one is %+v", waiting, c)
		}
		time.Sleep(time.Minute + time.Second/2)
		synctest.Wait()
		if got := len(h.attempts()) - sent; got < 59*second || got > 61*second {
			t.Errorf("%d were sent within a minute", got)
		}
		time.Sleep(time.Duration(all) * time.Second / second)
		synctest.Wait()
		if got := len(h.attempts()); got != all {
			t.Errorf("%d were sent in the end", got)
		}
		calls := map[string]int{"Park": all - sent, "Finish": all, "Fail": 0, "Begin": 0, "HandBack": 0}
		for call, want := range calls {
			if got := store.called(call); got != want {
				t.Errorf("%s was called %d times, want %d", call, got, want)
			}
		}
		f.stop()
	})
}

// TestThePageNamesEachReason holds that WAITING.md has the rules, in their order.
func TestThePageNamesEachReason(t *testing.T) {
	var rows strings.Builder
	for _, r := range fsm.BlockRules {
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", r.Reason, r.By, r.Says, r.Ends)
	}
	if page, err := os.ReadFile("WAITING.md"); err != nil || !strings.Contains(string(page), rows.String()+"\n") {
		t.Errorf("%v; the table is to be\n%s", err, rows.String())
	}
}
