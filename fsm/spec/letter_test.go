package spec

import (
	"testing"
	"time"

	"reveille/fsm"
)

// TestOnlyWhatIsAckedLeavesALetter holds when a delivery that is dead is kept, and since when it says that the endpoint
// has failed.
func TestOnlyWhatIsAckedLeavesALetter(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	env := Env{Now: now, WakeID: "w2", Timing: timing}
	failing := now.Add(-time.Hour)
	for name, tt := range map[string]struct {
		change func(*fsm.Consumer, *fsm.Delivered)
		kept   bool
	}{
		"the dead":                       {func(*fsm.Consumer, *fsm.Delivered) {}, true},
		"what was delivered leaves none": {func(_ *fsm.Consumer, d *fsm.Delivered) { d.Dead = nil }, false},
		"nor does what was acked before": {
			func(_ *fsm.Consumer, d *fsm.Delivered) { d.To, d.Within = fsm.Start, fsm.Start }, false,
		},
		"nor what is beyond the tail": {
			func(_ *fsm.Consumer, d *fsm.Delivered) { d.To, d.Within = "0009", "0009" }, false,
		},
		"nor what was read of an earlier stream of the name": {
			func(c *fsm.Consumer, _ *fsm.Delivered) {
				l := c.Links["/a"]
				l.Since = c.Epoch
				c.Links["/a"] = l
			}, false,
		},
	} {
		c := fsm.Consumer{
			ID: "s:%2Fa", Subscription: "s", Primary: "/a",
			Links:    map[string]fsm.Link{"/a": {Acked: fsm.Start, Tail: "0005"}},
			Lease:    fsm.Lease{State: fsm.Waking, Epoch: 3, WakeID: "w1"},
			Attempts: fsm.Attempts{Sent: true, Attempt: 2, FirstFailure: failing},
		}
		d := fsm.Delivered{Path: "/a", To: "0005", Within: "0005", Dead: &fsm.DeadLetter{Reason: "status 400"}}
		tt.change(&c, &d)
		_, e := Deliver(c, env, deliveryNow(c).Ref(), d)
		switch {
		case (e.Dead != nil) != tt.kept:
			t.Errorf("%s: the letter is %+v", name, e.Dead)
		case tt.kept && (e.Dead.Reason != "status 400" || !e.Dead.FirstFailure.Equal(failing)):
			t.Errorf("%s: the letter is %+v", name, e.Dead)
		}
	}
}

func TestALetterIsReplayedByTheStreamItIsOf(t *testing.T) {
	c := fsm.Consumer{ID: "s:%2Fa", Generation: "g", Primary: "/a", Born: 4, Lease: fsm.Lease{Epoch: 9}}
	l := fsm.DeadLetter{Generation: "g", Born: 4, From: fsm.Start, Within: "0005"}
	for name, tt := range map[string]struct {
		change func(*fsm.DeadLetter)
		want   bool
	}{
		"of this one":                         {func(*fsm.DeadLetter) {}, true},
		"of an earlier subscription":          {func(l *fsm.DeadLetter) { l.Generation = "f" }, false},
		"of a stream that was made anew":      {func(l *fsm.DeadLetter) { l.Born = 3 }, false},
		"of nothing: it cannot be read again": {func(l *fsm.DeadLetter) { l.Within = "" }, false},
	} {
		letter := l
		tt.change(&letter)
		if got := Replays(c, letter); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
