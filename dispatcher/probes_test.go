package dispatcher

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
)

// probeGap is how long an endpoint that is down may go without a request. It is the longest pause, and the time to
// notice its end.
const probeGap = fsm.ProbePauseMax + probeLate + 2*probeLook

// ailing is an endpoint that fails for a while, and its deliveries.
type ailing struct {
	Streams int
	Retry   []time.Duration
	Fails   time.Duration
}

func (a ailing) String() string {
	return fmt.Sprintf("%d streams, retried after %s, to an endpoint that fails for %s", a.Streams, a.Retry, a.Fails)
}

// repaired lets an endpoint fail, then work again. It returns what was wrong with the way that this was noticed. Just
// before the repair, it calls look, which looks at the consumers.
func (a ailing) repaired(t *testing.T, look func(*pushed)) (wrong string) {
	inPushTime(t, func(s *fsm.Subscription) { s.Retry = a.Retry }, func(p *pushed) {
		p.hook.answers(answersWith(http.StatusServiceUnavailable))
		began := time.Now()
		for n := range a.Streams {
			p.event(fmt.Sprint("/s/", n))
		}
		pass(a.Fails)
		look(p)
		e, _, trouble := p.store.Endpoints().Get(p.sub.Generation)
		if !trouble || !e.Down() { // too few deliveries have failed
			return
		}
		var times []time.Time
		for n := range a.Streams {
			times = append(times, p.hook.times(fmt.Sprint("/s/", n))...)
		}
		slices.SortFunc(times, time.Time.Compare)
		for i, at := range append(times[fsm.DownAfter:], time.Now()) {
			if gap := at.Sub(times[fsm.DownAfter-1+i]); gap > probeGap && wrong == "" {
				wrong = fmt.Sprintf("it is down, and gets no request for %s at %s", gap, at.Sub(began))
			}
		}
		p.hook.answers(answersWith(http.StatusOK))
		pass(probeGap)
		for n := range a.Streams {
			if c := p.consumer(fmt.Sprint("/s/", n)); c.State != fsm.Idle && wrong == "" {
				wrong = fmt.Sprintf("it is repaired since %s, and one waits: %+v", probeGap, c)
			}
		}
	})
	return wrong
}

func TestAnEndpointThatIsDownIsAskedWithinAMinute(t *testing.T) {
	a := ailing{Streams: 2, Retry: fsm.PushRetry, Fails: 330 * time.Second}
	wrong := a.repaired(t, func(p *pushed) {
		for n := range a.Streams { // at once, after half a minute and after two minutes
			if c := p.consumer(fmt.Sprint("/s/", n)); c.Attempt != 3 {
				t.Errorf("%d attempts count, want those of the schedule: %+v", c.Attempt, c)
			}
		}
	})
	if wrong != "" {
		t.Errorf("%s: %s", a, wrong)
	}
}

// TestAnyEndpointThatIsDownIsAskedWithinAMinute draws schedules, and for how long an endpoint is down.
func TestAnyEndpointThatIsDownIsAskedWithinAMinute(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		delay := rapid.SampledFrom([]time.Duration{
			time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, 12 * time.Hour,
		})
		a := ailing{
			Streams: rapid.IntRange(2, 8).Draw(rt, "streams"),
			Retry:   append(rapid.SliceOfN(delay, 1, 5).Draw(rt, "delays"), 12*time.Hour),
			Fails:   time.Duration(rapid.IntRange(1, 900).Draw(rt, "fails for seconds")) * time.Second,
		}
		if wrong := a.repaired(t, func(*pushed) {}); wrong != "" {
			rt.Fatalf("%s: %s", a, wrong)
		}
	})
}

// TestAProbeLeavesTheScheduleAlone holds that no probe is the last attempt of an event, however many probes there are.
// The attempts of the schedule are made and count.
func TestAProbeLeavesTheScheduleAlone(t *testing.T) {
	retry := []time.Duration{time.Minute, 20 * time.Minute}
	inPushTime(t, func(s *fsm.Subscription) { s.Retry = retry }, func(p *pushed) {
		p.hook.answers(answersWith(http.StatusServiceUnavailable))
		for n := range 3 {
			p.event(fmt.Sprint("/s/", n))
		}
		pass(15 * time.Minute)
		if n := p.hook.requests(); n < 15 {
			t.Errorf("%d requests in 15 minutes", n)
		}
		for n := range 3 {
			if c := p.consumer(fmt.Sprint("/s/", n)); c.State != fsm.Waking || c.Attempt != 2 {
				t.Errorf("after 15 minutes: %+v", c)
			}
		}
		if letters := p.store.letters(t); letters != 0 {
			t.Errorf("%d dead letters before the last attempt", letters)
		}
		pass(15 * time.Minute)
		if letters := p.store.letters(t); letters != 3 {
			t.Errorf("%d dead letters after the last attempts, want 3", letters)
		}
	})
}

// TestNoProbeIsCarriedForAnEndpointThatAsksForAPauseOrIsPaused holds which endpoints are left alone.
func TestNoProbeIsCarriedForAnEndpointThatAsksForAPauseOrIsPaused(t *testing.T) {
	for name, leave := range map[string]func(*pushed){
		"it has asked for a pause": func(p *pushed) {
			f := fsm.EndpointFailure{RetryAfter: time.Hour}
			if _, err := p.store.FailEndpoint(t.Context(), p.sub, f); err != nil {
				t.Error(err)
			}
		},
		"its subscription is paused": func(p *pushed) { p.store.pause(t, p.sub.ID) },
	} {
		t.Run(name, func(t *testing.T) {
			inPushTime(t, lasting, func(p *pushed) {
				p.hook.answers(answersWith(http.StatusServiceUnavailable))
				for n := range fsm.DownAfter {
					p.event(fmt.Sprint("/s/", n))
				}
				pass(time.Millisecond)
				leave(p)
				synctest.Wait()
				before := p.hook.requests()
				pass(5 * time.Minute)
				if n := p.hook.requests() - before; n != 0 {
					t.Errorf("it got %d requests", n)
				}
			})
		})
	}
}
