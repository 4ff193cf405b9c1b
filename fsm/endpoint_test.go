package fsm

import (
	"testing"
	"time"
)

// moment is one some seconds after another.
func moment(seconds int) time.Time { return time.Unix(1_790_000_000+int64(seconds), 0) }

// TestWhatAnEndpointShowsLast holds since when it has taken nothing, and what the latest failure says of it.
func TestWhatAnEndpointShowsLast(t *testing.T) {
	fails := EndpointFailure{Reason: "status 503"}
	refuses := EndpointFailure{Refused: true, Reason: "status 404"}
	shows := EndpointFailure{Shown: true, Reason: "status 500"}
	var e Endpoint
	condition := func(at int) Condition { return EndpointNow{e, moment(at)}.Condition() }
	for at, step := range []struct {
		failure *EndpointFailure // nil for a 2xx
		since   int
		want    Condition
	}{
		{&refuses, 0, ConditionRefusing},
		{&fails, 0, ConditionFailing},
		{&refuses, 0, ConditionRefusing},
		{nil, 0, ConditionOK},
		{&shows, 4, ConditionFailing},
		{&shows, 4, ConditionFailing},
		{nil, 0, ConditionOK},
		{&fails, 7, ConditionFailing},
		{&fails, 7, ConditionFailing},
		{&fails, 7, ConditionFailing},
		{&fails, 7, ConditionFailing},
		{&fails, 7, ConditionDown},
		{&refuses, 7, ConditionDown},
		{nil, 0, ConditionOK},
	} {
		if step.failure == nil {
			e = e.Recover(moment(at))
			if e != (Endpoint{}) {
				t.Errorf("at %d something is left: %+v", at, e)
			}
			continue
		}
		if news := !e.Shows(*step.failure); !news && at != 5 && at < 8 {
			t.Errorf("at %d there is no news", at)
		}
		e = e.Fail(moment(at), *step.failure)
		if !e.Since.Equal(moment(step.since)) || condition(at) != step.want || e.Reason != step.failure.Reason {
			t.Errorf("at %d: %s, %+v", at, condition(at), e)
		}
	}
	e = Endpoint{}
	for range 2 * DownAfter {
		e = e.Fail(moment(0), refuses).Fail(moment(0), shows)
	}
	if e.Down() || e.Failures > 0 {
		t.Errorf("what is refused or only shown makes an endpoint down: %+v", e)
	}
	down := Endpoint{Failures: DownAfter, Next: moment(0), Since: moment(0), Probes: 3}
	down, probe := down.Probe(moment(1), time.Minute)
	refuses.Probe = probe.Slot
	if got, want := down.Fail(moment(2), refuses), down.Return(moment(2), probe.Slot, true); got.Next != want.Next ||
		got.Probing || got.Probes != want.Probes {
		t.Errorf("a probe that is refused leaves %+v, want it returned: %+v", got, want)
	}
	if e = e.Fail(moment(0), EndpointFailure{Reason: string(make([]byte, 2*MaxReason))}); len(e.Reason) != MaxReason {
		t.Errorf("a reason of %d bytes is kept", len(e.Reason))
	}
}

// TestAnEndpointIsLeftAloneForAsLongAsItAsks holds what a Retry-After does for a whole endpoint.
func TestAnEndpointIsLeftAloneForAsLongAsItAsks(t *testing.T) {
	asks := func(d time.Duration) EndpointFailure { return EndpointFailure{RetryAfter: d} }
	for _, tc := range []struct {
		name string
		was  Endpoint
		do   func(Endpoint) Endpoint
		want Endpoint
	}{
		{
			"it asks for a pause",
			Endpoint{},
			func(e Endpoint) Endpoint { return e.Fail(moment(0), asks(time.Minute)) },
			Endpoint{Until: moment(60), Failures: 1, Since: moment(0)},
		},
		{
			"a later answer asks for less",
			Endpoint{Until: moment(60)},
			func(e Endpoint) Endpoint { return e.Fail(moment(1), asks(time.Second)) },
			Endpoint{Until: moment(60), Failures: 1, Since: moment(1)},
		},
		{
			"a later answer asks for more",
			Endpoint{Until: moment(60)},
			func(e Endpoint) Endpoint { return e.Fail(moment(1), asks(time.Minute)) },
			Endpoint{Until: moment(61), Failures: 1, Since: moment(1)},
		},
		{
			"it asks for too much",
			Endpoint{},
			func(e Endpoint) Endpoint { return e.Fail(moment(0), asks(5*time.Hour)) },
			Endpoint{Until: moment(3600), Failures: 1, Since: moment(0)},
		},
		{
			"a delivery that began before is taken",
			Endpoint{Until: moment(60)},
			func(e Endpoint) Endpoint { return e.Recover(moment(59)) },
			Endpoint{Until: moment(60)},
		},
		{
			"a delivery is taken after the pause",
			Endpoint{Until: moment(60)},
			func(e Endpoint) Endpoint { return e.Recover(moment(60)) },
			Endpoint{},
		},
	} {
		if got := tc.do(tc.was); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// TestAnEndpointThatIsDownIsProbed holds when an endpoint is down, and which deliveries may begin then.
func TestAnEndpointThatIsDownIsProbed(t *testing.T) {
	const patience = 45 * time.Second
	var e Endpoint
	fails := func(at int, probe time.Time) { e = e.Fail(moment(at), EndpointFailure{Probe: probe}) }
	allowed := func(at int, want bool) (p Probe) {
		t.Helper()
		if e, p = e.Probe(moment(at), patience); p.Allowed != want || p.Allowed == (p.Wait > 0) {
			t.Fatalf("after %d s: %+v, want %t; %+v", at, p, want, e)
		}
		return p
	}
	down := func(at int) {
		t.Helper()
		for range DownAfter - 1 {
			fails(at, time.Time{})
		}
		if p := allowed(at, true); e.Down() || !p.Slot.IsZero() {
			t.Fatalf("after too few failures it is %+v, and a delivery is %+v", e, p)
		}
		if fails(at, time.Time{}); !e.Down() {
			t.Fatalf("after %d failures it is %+v", DownAfter, e)
		}
	}
	down(0)
	e = e.Recover(moment(0))
	down(0)
	at, pauses := 0, []int{1, 2, 4, 8, 16, 32, 60, 60}
	for _, pause := range pauses {
		allowed(at+pause-1, false)
		at += pause
		p := allowed(at, true)
		allowed(at, false)
		fails(at, time.Time{}) // one that was under way: the pause is the probe's
		fails(at, p.Slot)
		fails(at, p.Slot) // which is over
	}
	t.Run("a probe that nobody tells of counts as lost after its patience", func(t *testing.T) {
		at += 60
		lost := allowed(at, true)
		allowed(at+44, false)
		if wait := e.Wait(moment(at)); wait > patience {
			t.Errorf("the others wait for %s", wait)
		}
		at += 45
		p := allowed(at, true)
		fails(at, lost.Slot)
		allowed(at+1, false)
		e = e.Return(moment(at), p.Slot, false)
	})
	t.Run("one that was not sent is followed at once", func(t *testing.T) {
		e = e.Return(moment(at), allowed(at, true).Slot, false)
	})
	t.Run("after one that was sent and has not failed, the pauses begin anew", func(t *testing.T) {
		e = e.Return(moment(at), allowed(at, true).Slot, true)
		allowed(at, false)
		p := allowed(at+1, true)
		fails(at+1, p.Slot)
		allowed(at+2, false)
		e = e.Return(moment(at+3), allowed(at+3, true).Slot, false)
	})
	t.Run("a pause that was asked for goes before", func(t *testing.T) {
		asks := e.Fail(moment(at), EndpointFailure{RetryAfter: time.Minute})
		if _, p := asks.Probe(moment(at+59), patience); p.Allowed || p.Wait != time.Second {
			t.Errorf("%+v", p)
		}
	})
	if e = e.Recover(moment(at)); e != (Endpoint{}) {
		t.Errorf("after a 2xx it is %+v", e)
	}
}

// TestLaterNewsOfAnEndpointCounts has a replica hear of an endpoint from its own calls and from the list, in whichever
// order they come.
func TestLaterNewsOfAnEndpointCounts(t *testing.T) {
	paused := func(version int64, until int) EndpointState {
		return EndpointState{Endpoint: Endpoint{Until: moment(until)}, Generation: "g", Version: version}
	}
	works := func(version int64) EndpointState { return EndpointState{Generation: "g", Version: version} }
	for _, tc := range []struct {
		name string
		do   func(*Endpoints)
		want Endpoint
	}{
		{"nothing is known", func(*Endpoints) {}, Endpoint{}},
		{"an answer", func(v *Endpoints) { v.Note(paused(1, 10), moment(0)) }, Endpoint{Until: moment(10)}},
		{"a late answer", func(v *Endpoints) {
			v.Note(paused(2, 20), moment(0))
			v.Note(paused(1, 10), moment(0))
		}, Endpoint{Until: moment(20)}},
		{"a late answer that it works", func(v *Endpoints) {
			v.Note(paused(2, 20), moment(0))
			v.Note(works(1), moment(0))
		}, Endpoint{Until: moment(20)}},
		{"an answer that is older than the list", func(v *Endpoints) {
			v.Replace(nil, 2, moment(0))
			v.Note(paused(1, 10), moment(0))
		}, Endpoint{}},
		{"a change that is older than an answer", func(v *Endpoints) {
			v.Replace(nil, 1, moment(0))
			v.Note(paused(3, 30), moment(0))
			v.Change([]EndpointState{paused(2, 20)}, 2, moment(0))
		}, Endpoint{Until: moment(30)}},
		{"a change that it works", func(v *Endpoints) {
			v.Note(paused(1, 10), moment(0))
			v.Change([]EndpointState{works(2)}, 2, moment(0))
		}, Endpoint{}},
		{"a list of a store that has lost its latest changes", func(v *Endpoints) {
			v.Note(paused(3, 10), moment(0))
			v.Replace(nil, 1, moment(0))
		}, Endpoint{}},
		{"an answer of such a store", func(v *Endpoints) {
			v.Replace([]EndpointState{paused(3, 10)}, 3, moment(0))
			v.Replace(nil, 1, moment(0))
			v.Note(works(1), moment(0))
		}, Endpoint{}},
		{"the store had nothing to keep of a pause", func(v *Endpoints) {
			v.Pause("g", time.Minute)
			v.Note(works(0), moment(0))
		}, Endpoint{}},
	} {
		v := NewEndpoints()
		tc.do(v)
		got, now, trouble := v.Get("g")
		if got != tc.want || trouble != (tc.want != Endpoint{}) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
		if trouble && (now.Before(moment(0)) || now.After(moment(9))) {
			t.Errorf("%s: the store's clock is said to be at %s", tc.name, now)
		}
	}
}

// TestAnEndpointIsRetried holds what an operator's asking does to an endpoint.
func TestAnEndpointIsRetried(t *testing.T) {
	now := time.UnixMilli(1_790_000_000_000)
	if e := (Endpoint{Until: now.Add(time.Hour), Failures: 1, Since: now}).Retry(now); (e != Endpoint{}) {
		t.Errorf("something goes on: %+v", e)
	}
	down := Endpoint{Failures: DownAfter, Next: now.Add(time.Minute), Probes: 6}
	if e := down.Retry(now); (e != Endpoint{Failures: DownAfter, Next: now, Probes: 6}) {
		t.Errorf("one that is down: %+v", e)
	}
	down.Probing = true
	if e := down.Retry(now); e != down {
		t.Errorf("one whose probe is out: %+v", e)
	}
}
