package spec

import (
	"testing"
	"time"

	"reveille/fsm"
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

// TestAWakeThatMayBeLostIsMadeANewOne holds that the delivery of a push stays the same: its attempts count on.
func TestAWakeThatMayBeLostIsMadeANewOne(t *testing.T) {
	push := fsm.Profile{Attempt: 10 * time.Second, Delays: []time.Duration{time.Second, time.Second}}
	for name, c := range map[string]struct {
		profile  fsm.Profile
		span     int64
		reported bool
		attempt  int
	}{
		"a push that has failed":                          {push, 3, true, 2},
		"a push whose first attempt was not reported":     {push, 0, false, 1},
		"a wake, which is told by another id from now on": {fsm.Profile{}, 0, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			was := waking("10", "11")
			was.Profile = c.profile
			if c.reported {
				was, _ = Fail(was, at(0), ref(was), fsm.Failure{Reason: "status 500", Profile: c.profile, Span: c.span})
			}
			env := at(time.Hour)
			env.Base = 1000
			now, e := Due(was, env)
			if e.Ended == nil || e.Ended.Cause != fsm.EndLost || e.Delivery == nil || now.Epoch != 1001 ||
				now.WakeID == was.WakeID {
				t.Fatalf("it became %+v, with %+v", now, e)
			}
			if w := e.Delivery; w.Attempt != c.attempt || w.Span != c.span {
				t.Errorf("attempt %d of %d events, want %d of %d", w.Attempt, w.Span, c.attempt, c.span)
			}
		})
	}
}
