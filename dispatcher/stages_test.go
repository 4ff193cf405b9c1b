package dispatcher

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/fsm/router"
)

// TestNothingIsLeftOfAnAttempt holds that the contexts of an attempt's steps end with it: anything left of each attempt
// would add up.
func TestNothingIsLeftOfAnAttempt(t *testing.T) {
	contexts := make(chan context.Context, 10)
	keep := func(ctx context.Context, _ *attempt) bool {
		contexts <- ctx
		return true
	}
	hook := endpoint(t, func(http.ResponseWriter, *http.Request) {})
	f := start(t, newMemStore(), nil, func(d *Dispatcher) {
		s := &d.stages
		for _, stage := range []*[]step{&s.prepare, &s.allow, &s.build, &s.send, &s.judge} {
			*stage = append([]step{keep}, *stage...)
		}
	})
	f.Deliver(f.store.event(f.store.addSubscription("s", hook), "/s/1", "0005"))
	f.store.untilCalls(t, "Accept", 1)
	close(contexts)
	n := 0
	for ctx := range contexts {
		if n++; ctx.Err() == nil {
			t.Errorf("the context of step %d goes on", n)
		}
	}
	if n != 5 {
		t.Errorf("%d steps were passed", n)
	}
}

// TestEachStageTakesAnotherStep holds that a step can be put into any stage, and what it can do there. If the step ends
// the attempt, no further step runs, and the attempt is settled all the same.
func TestEachStageTakesAnotherStep(t *testing.T) {
	ends := func(r fsm.AttemptResult) step {
		return func(_ context.Context, a *attempt) bool {
			return a.ends(format.Verdict{Result: r, Reason: "the added step"})
		}
	}
	waits := func(_ context.Context, a *attempt) bool { return a.blocked("the added step", time.Minute) }
	marks := func(_ context.Context, a *attempt) bool {
		a.request.Header.Set("X-Added", "yes")
		return true
	}
	answers := func(_ context.Context, a *attempt) bool {
		a.status, a.response = http.StatusNoContent, &http.Response{Body: http.NoBody}
		return true
	}
	for name, test := range map[string]struct {
		add func(*stages)
		// requests has the X-Added header of each request that arrives; settled is the call to the store.
		requests []string
		settled  string
	}{
		"none is added": {add: func(*stages) {}, requests: []string{""}, settled: "Accept"},
		"prepare finds nothing to deliver": {
			add:     func(s *stages) { s.prepare = append(s.prepare, ends(fsm.AttemptDone)) },
			settled: "Finish",
		},
		"allow has it wait": {
			add:     func(s *stages) { s.allow = append(s.allow, waits) },
			settled: "Park",
		},
		"build adds to the request": {
			add:      func(s *stages) { s.build = append(s.build, marks) },
			requests: []string{"yes"}, settled: "Accept",
		},
		"send by another way": {add: func(s *stages) { s.send = []step{answers} }, settled: "Accept"},
		"judge before the format does": {
			add:      func(s *stages) { s.judge = append([]step{ends(fsm.AttemptRetired)}, s.judge...) },
			requests: []string{""}, settled: "Fail",
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan string, 1)
			bytes := 0 // read after the store was told
			hook := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
				bytes = int(r.ContentLength)
				requests <- r.Header.Get("X-Added")
			})
			var attempts []fsm.Attempt // read after the store was told
			f := start(t, newMemStore(), nil, func(d *Dispatcher) {
				test.add(&d.stages)
				d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) { attempts = append(attempts, a) }})
			})
			f.Deliver(f.store.event(f.store.addSubscription("s", hook), "/s/1", "0005"))
			f.store.untilCalls(t, test.settled, 1)
			f.stop()
			close(requests)
			var arrived []string
			for header := range requests {
				arrived = append(arrived, header)
			}
			if !slices.Equal(arrived, test.requests) {
				t.Errorf("the endpoint got %q, want %q", arrived, test.requests)
			}
			if len(attempts) != 1 || "http://"+attempts[0].Host != hook || attempts[0].Took <= 0 ||
				attempts[0].Bytes != bytes {
				t.Errorf("the observers were told of %+v", attempts)
			}
		})
	}
}
