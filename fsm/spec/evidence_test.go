package spec

import (
	"testing"

	"reveille/fsm"
)

func TestWhatIsNotedOfAStreamOnceATailWasShown(t *testing.T) {
	open, closed := fsm.Noted{Tail: "20"}, fsm.Noted{Tail: "20", Closed: true}
	for name, tt := range map[string]struct {
		noted  fsm.Noted
		tail   fsm.Offset
		closed bool
		want   fsm.Noted
	}{
		"nothing was noted":                   {fsm.Noted{}, "20", false, open},
		"nothing was noted, and it is closed": {fsm.Noted{}, "20", true, closed},
		"it goes on":                          {open, "30", false, fsm.Noted{Tail: "30"}},
		"it goes on, and is closed there":     {open, "30", true, fsm.Noted{Tail: "30", Closed: true}},
		"it was closed":                       {open, "20", true, closed},
		"old news":                            {open, "10", false, open},
		"old news of an end":                  {open, "10", true, open},
		"no tail":                             {open, "", true, open},
		"no tail of a stream that nothing is known of": {fsm.Noted{}, "", true, fsm.Noted{}},
		"another incarnation": {
			fsm.Noted{Tail: "a/20 1"}, "b/10 1", false, fsm.Noted{Tail: "a/20 1"},
		},
		"nothing lies beyond an end": {closed, "30", false, closed},
		"not even another end":       {closed, "30", true, closed},
		"an end is not taken back":   {closed, "20", false, closed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Raised(tt.noted, tt.tail, tt.closed); got != tt.want {
				t.Errorf("noted is %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestNobodyBeginsBeyondTheEndOfAClosedStream(t *testing.T) {
	open, closed := fsm.Noted{Tail: "20"}, fsm.Noted{Tail: "20", Closed: true}
	for _, tt := range []struct {
		noted       fsm.Noted
		at, want    fsm.Offset
		description string
	}{
		{closed, "30", "20", "beyond the end"},
		{closed, "20", "20", "at the end"},
		{closed, "10", "10", "before the end"},
		{closed, fsm.Start, fsm.Start, "at the start"},
		{open, "30", "30", "beyond the tail of an open stream"},
		{fsm.Noted{}, "30", "30", "in a stream that nothing is noted of"},
	} {
		if got := Beginning(tt.noted, tt.at); got != tt.want {
			t.Errorf("%s: begins at %q, want %q", tt.description, got, tt.want)
		}
	}
}
