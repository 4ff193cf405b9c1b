package bell_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"reveille/fsm/bell"
)

func TestABellKeepsAsManyRingsAsItHasWaiters(t *testing.T) {
	for name, test := range map[string]struct {
		bell        bell.Bell
		rings, kept int
	}{
		"never rung":             {bell.New(), 0, 0},
		"rung once":              {bell.New(), 1, 1},
		"rung twice":             {bell.New(), 2, 1},
		"with two waiters":       {make(bell.Bell, 2), 1, 1},
		"with two waiters, late": {make(bell.Bell, 2), 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			for range test.rings {
				test.bell.Ring()
			}
			if kept := len(test.bell); kept != test.kept {
				t.Fatalf("%d rings are kept, want %d", kept, test.kept)
			}
			for range test.kept {
				<-test.bell
			}
			if test.bell.Ring(); len(test.bell) != 1 {
				t.Error("a ring after the wait was lost")
			}
		})
	}
}

func TestARingWakesWhoWaits(t *testing.T) {
	b, woken := bell.New(), make(chan struct{})
	go func() {
		<-b
		close(woken)
	}()
	b.Ring()
	<-woken
}

// TestASleepEndsWithItsContext holds that only a whole sleep returns true.
func TestASleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		first, second := bell.Sleep(ctx, 2*time.Second), bell.Sleep(ctx, 2*time.Second)
		if took := time.Since(began); !first || second || took != 3*time.Second {
			t.Errorf("the sleeps return %t and %t after %s", first, second, took)
		}
	})
}
