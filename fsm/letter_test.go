package fsm

import (
	"testing"
	"time"
)

func TestTheIDOfADeadLetterIsReadAsItIsWritten(t *testing.T) {
	id := LetterID{Partition: 17, Number: 1764167412345678}
	if got, err := ParseLetterID(id.String(), 64); err != nil || got != id {
		t.Errorf("%s is read as %+v, %v", id, got, err)
	}
	for _, text := range []string{
		"", "dl_", "dl_1", "dl_1_", "dl__1", "dl_64_1", "dl_-1_1", "dl_1_0", "dl_1_-1", "dl_01_1", "dl_1_+1",
		"dl_1_1_1", "evt_1_1", "dl_1_99999999999999999999",
	} {
		if got, err := ParseLetterID(text, 64); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

// TestOnlyWhatIsAckedLeavesALetter holds when a delivery that is dead is kept, and since when it says that the endpoint
// has failed.
func TestOnlyWhatIsAckedLeavesALetter(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	env := Env{Now: now, WakeID: "w2", Timing: timing}
	failing := now.Add(-time.Hour)
	for name, tt := range map[string]struct {
		change func(*Consumer, *Delivered)
		kept   bool
	}{
		"the dead":                       {func(*Consumer, *Delivered) {}, true},
		"what was delivered leaves none": {func(_ *Consumer, d *Delivered) { d.Dead = nil }, false},
		"nor does what was acked before": {func(_ *Consumer, d *Delivered) { d.To, d.Within = Start, Start }, false},
		"nor what is beyond the tail":    {func(_ *Consumer, d *Delivered) { d.To, d.Within = "0009", "0009" }, false},
		"nor what was read of an earlier stream of the name": {
			func(c *Consumer, _ *Delivered) {
				l := c.Links["/a"]
				l.Since = c.Epoch
				c.Links["/a"] = l
			}, false,
		},
	} {
		c := Consumer{
			ID: "s:%2Fa", Subscription: "s", Primary: "/a", State: Waking, Sent: true, Epoch: 3, WakeID: "w1",
			Attempt: 2, FirstFailure: failing, Links: map[string]Link{"/a": {Acked: Start, Tail: "0005"}},
		}
		d := Delivered{Path: "/a", To: "0005", Within: "0005", Dead: &DeadLetter{Reason: "status 400"}}
		tt.change(&c, &d)
		_, e := c.Deliver(env, c.wakeNow().Ref(), d)
		switch {
		case (e.Dead != nil) != tt.kept:
			t.Errorf("%s: the letter is %+v", name, e.Dead)
		case tt.kept && (e.Dead.Reason != "status 400" || !e.Dead.FirstFailure.Equal(failing)):
			t.Errorf("%s: the letter is %+v", name, e.Dead)
		}
	}
}

func TestALetterIsReplayedByTheStreamItIsOf(t *testing.T) {
	c := Consumer{ID: "s:%2Fa", Generation: "g", Primary: "/a", Born: 4, Epoch: 9}
	l := DeadLetter{Generation: "g", Born: 4, From: Start, Within: "0005"}
	for name, tt := range map[string]struct {
		change func(*DeadLetter)
		want   bool
	}{
		"of this one":                         {func(*DeadLetter) {}, true},
		"of an earlier subscription":          {func(l *DeadLetter) { l.Generation = "f" }, false},
		"of a stream that was made anew":      {func(l *DeadLetter) { l.Born = 3 }, false},
		"of nothing: it cannot be read again": {func(l *DeadLetter) { l.Within = "" }, false},
	} {
		letter := l
		tt.change(&letter)
		if got := c.Replays(letter); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
