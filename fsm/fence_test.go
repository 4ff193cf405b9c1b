package fsm

import (
	"testing"
	"time"
)

func TestEachIncarnationBeginsAboveWhatTheOneBeforeMayHaveHandedOut(t *testing.T) {
	now := time.UnixMilli(1_790_000_000_000)
	for _, c := range []struct {
		name string
		// later is when the incarnation after the second begins, by its own clock.
		later time.Duration
	}{
		{"a minute later", time.Minute},
		{"at the same moment", 0},
		{"on a server whose clock is ten minutes behind", -10 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			second := Fence{}.In("first", now).In("second", now)
			third := second.In("third", now.Add(c.later))
			// A consumer that is woken a thousand times while its server is up for a second.
			if lost := second.Base + 1000; third.Base < lost {
				t.Errorf("epoch %d may have been handed out before an incarnation that begins above %d", lost,
					third.Base)
			}
		})
	}
}
