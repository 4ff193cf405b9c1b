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
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
)

func TestThoseWhoWaitedForAnUpstreamReturnSpreadOverAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, spread = 400, time.Second
		pause := Backoff{Min: time.Minute, Max: time.Minute}
		h := (&Client{cfg: Config{Logger: zap.NewNop()}}).NewHealth(pause, spread, func() {})
		for i := range DownAfter {
			h.Report(fmt.Sprint("/", i), h.Spell(), &net.OpError{Op: "read", Err: errors.New("broken")})
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
		h.Report("/0", h.Spell(), nil)
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

// What was asked before an outage may be answered while no new connection is taken.
func TestWhatWasAskedInAnotherSpellSaysNothingOfThePresent(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	var back int
	h := (&Client{cfg: Config{Logger: zap.New(core)}}).NewHealth(Backoff{}, 0, func() { back++ })
	refused := &net.OpError{Op: "dial", Err: errors.New("refused")}
	fail := func(asked Spell) {
		for range DownAfter {
			h.Report("/a", asked, refused)
		}
	}
	// Each asks before what the row says happens, and is answered after it.
	for _, c := range []struct {
		name   string
		happen func()
		answer error
		down   bool
	}{
		{"an answer during an outage", func() { fail(h.Spell()) }, nil, true},
		{"one that a probe was asked for in the outage", func() {}, nil, false},
		{"a failure after an outage", func() { fail(h.Spell()); h.Report("/a", h.Spell(), nil) }, refused, false},
		{"failures while it is up", func() {}, refused, true},
	} {
		asked := h.Spell()
		c.happen()
		for range DownAfter {
			h.Report("/late", asked, c.answer)
		}
		if h.IsDown() != c.down {
			t.Errorf("%s: it is down is %t", c.name, h.IsDown())
		}
	}
	if a, b := logs.FilterMessageSnippet("is down").Len(), logs.FilterMessageSnippet("answers again").Len(); a != 3 ||
		b != 2 || back != 2 {
		t.Errorf("%d outages are logged, %d ends, and %d are acted on; want 3, 2, 2", a, b, back)
	}
}

// TestTheStatusOfTheStreamServerSaysSinceWhen holds that only what changes its state changes the time.
func TestTheStatusOfTheStreamServerSaysSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{cfg: Config{Logger: zap.NewNop()}}
		h := c.NewHealth(Backoff{Min: time.Minute, Max: time.Minute}, 0, func() {})
		broken := &net.OpError{Op: "read", Err: errors.New("broken")}
		expect := func(when string, state fsm.StreamServerState, since time.Time) {
			t.Helper()
			want := fsm.StreamServerStatus{State: state, Since: since, Dialect: DialectStandard, Watching: TailSSE}
			if got := h.Status(); got != want {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
			time.Sleep(time.Second)
		}
		expect("before it was asked", fsm.StreamServerNotSeen, time.Time{})
		h.Report("/0", h.Spell(), broken)
		expect("one stream fails", fsm.StreamServerNotSeen, time.Time{})
		c.noteShown(true)
		expect("it was probed, and no stream was asked for", fsm.StreamServerUp, time.Now())
		h.Report("/0", h.Spell(), nil)
		up := time.Now()
		expect("it has answered", fsm.StreamServerUp, up)
		h.Report("/0", h.Spell(), nil)
		h.Report("/1", h.Spell(), broken)
		expect("one stream fails later", fsm.StreamServerUp, up)
		for i := range DownAfter {
			h.Report(fmt.Sprint("/", i), h.Spell(), broken)
		}
		down := time.Now()
		expect("it fails", fsm.StreamServerDown, down)
		h.Report("/0", h.Spell(), broken)
		expect("it goes on", fsm.StreamServerDown, down)
		h.Report("/0", h.Spell(), nil)
		expect("it answers again", fsm.StreamServerUp, time.Now())
	})
}
