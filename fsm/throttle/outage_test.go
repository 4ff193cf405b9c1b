package throttle

import (
	"testing"
	"time"
)

var t0 = time.UnixMilli(1_790_000_000_000)

// outageStep is a task that fails, or works, at a time, and what is logged then.
type outageStep struct {
	at      time.Duration
	task    string
	fails   bool
	log     bool
	outages int
	lasted  time.Duration
}

func TestAnOutageIsOneForAllTasks(t *testing.T) {
	const s = time.Second
	for name, steps := range map[string][]outageStep{
		"it has one line at its beginning and one at its end, with its length": {
			{0, "a", true, true, 1, 0},
			{1 * s, "b", true, false, 0, 0},
			{2 * s, "a", true, false, 0, 0},
			{3 * s, "c", false, false, 0, 0}, // it never failed
			{9 * s, "a", false, false, 0, 0},
			{10 * s, "b", false, true, 0, 10 * s},
			{11 * s, "a", false, false, 0, 0},
		},
		"the second is counted and timed by itself": {
			{0, "a", true, true, 1, 0},
			{20 * s, "a", true, false, 0, 0},
			{40 * s, "a", false, true, 0, 40 * s},
			{100 * s, "b", true, true, 1, 0},
			{105 * s, "b", false, true, 0, 5 * s},
		},
		"those that begin soon after a line are told of by the next line": {
			{0, "a", true, true, 1, 0},
			{1 * s, "a", false, true, 0, 1 * s},
			{2 * s, "a", true, false, 0, 0},
			{3 * s, "a", false, false, 0, 1 * s},
			{4 * s, "a", true, false, 0, 0},
			{29 * s, "a", true, false, 0, 0},
			{30 * s, "a", true, true, 2, 0},
			{44 * s, "a", false, true, 0, 40 * s},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var o Outage
			for _, step := range steps {
				got := step
				got.outages, got.lasted = 0, 0
				if now := t0.Add(step.at); step.fails {
					got.outages, got.log = o.Failed(step.task, now)
				} else {
					got.lasted, got.log = o.Worked(step.task, now)
				}
				if got != step {
					t.Errorf("%+v, want %+v", got, step)
				}
				if o.Fails(step.task) != step.fails {
					t.Errorf("at %s: %s fails is %t", step.at, step.task, !step.fails)
				}
			}
		})
	}
}

func TestTheFirstTaskThatWorksAgainHasTheOthersTry(t *testing.T) {
	var o Outage
	if o.Mended() != nil {
		t.Error("without an outage, one waits for its end")
	}
	for _, task := range []string{"a", "b", "c"} {
		o.Failed(task, t0)
	}
	for _, task := range []string{"b", "a", "c"} {
		mended := o.Mended()
		select {
		case <-mended:
			t.Fatalf("before %s works, one works", task)
		default:
		}
		o.Worked("another", t0)
		o.Worked(task, t0)
		<-mended
	}
	if o.Mended() != nil {
		t.Error("it is over, and one waits for its end")
	}
}
