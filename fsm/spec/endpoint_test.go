package spec

import (
	"testing"
	"time"

	"reveille/fsm"
)

// moment is one some seconds after another.
func moment(seconds int) time.Time { return time.Unix(1_790_000_000+int64(seconds), 0) }

// TestWhatAnEndpointShowsLast holds since when it has taken nothing, and what the latest failure says of it.
func TestWhatAnEndpointShowsLast(t *testing.T) {
	fails := fsm.EndpointFailure{Reason: "status 503"}
	refuses := fsm.EndpointFailure{Refused: true, Reason: "status 404"}
	shows := fsm.EndpointFailure{Shown: true, Reason: "status 500"}
	var e fsm.Endpoint
	condition := func(at int) fsm.Condition { return fsm.EndpointNow{Endpoint: e, Now: moment(at)}.Condition() }
	for at, step := range []struct {
		failure *fsm.EndpointFailure // nil for a 2xx
		since   int
		want    fsm.Condition
	}{
		{&refuses, 0, fsm.ConditionRefusing},
		{&fails, 0, fsm.ConditionFailing},
		{&refuses, 0, fsm.ConditionRefusing},
		{nil, 0, fsm.ConditionOK},
		{&shows, 4, fsm.ConditionFailing},
		{&shows, 4, fsm.ConditionFailing},
		{nil, 0, fsm.ConditionOK},
		{&fails, 7, fsm.ConditionFailing},
		{&fails, 7, fsm.ConditionFailing},
		{&fails, 7, fsm.ConditionFailing},
		{&fails, 7, fsm.ConditionFailing},
		{&fails, 7, fsm.ConditionDown},
		{&refuses, 7, fsm.ConditionDown},
		{nil, 0, fsm.ConditionOK},
	} {
		if step.failure == nil {
			e = RecoverEndpoint(e, moment(at))
			if e != (fsm.Endpoint{}) {
				t.Errorf("at %d something is left: %+v", at, e)
			}
			continue
		}
		if news := !e.Shows(*step.failure); !news && at != 5 && at < 8 {
			t.Errorf("at %d there is no news", at)
		}
		e = FailEndpoint(e, moment(at), *step.failure)
		if !e.Since.Equal(moment(step.since)) || condition(at) != step.want || e.Reason != step.failure.Reason {
			t.Errorf("at %d: %s, %+v", at, condition(at), e)
		}
	}
	e = fsm.Endpoint{}
	for range 2 * fsm.DownAfter {
		e = FailEndpoint(FailEndpoint(e, moment(0), refuses), moment(0), shows)
	}
	if e.Down() || e.Failures > 0 {
		t.Errorf("what is refused or only shown makes an endpoint down: %+v", e)
	}
	down := fsm.Endpoint{Failures: fsm.DownAfter, Next: moment(0), Since: moment(0), Probes: 3}
	down, probe := ProbeEndpoint(down, time.Time{}, moment(1), time.Minute)
	refuses.Probe = probe.Slot
	got, want := FailEndpoint(down, moment(2), refuses), ReturnProbe(down, moment(2), probe.Slot, true)
	if got.Next != want.Next ||
		got.Probing || got.Probes != want.Probes {
		t.Errorf("a probe that is refused leaves %+v, want it returned: %+v", got, want)
	}
	e = FailEndpoint(e, moment(0), fsm.EndpointFailure{Reason: string(make([]byte, 2*fsm.MaxReason))})
	if len(e.Reason) != fsm.MaxReason {
		t.Errorf("a reason of %d bytes is kept", len(e.Reason))
	}
}

// TestAnEndpointIsLeftAloneForAsLongAsItAsks holds what a Retry-After does for a whole endpoint.
func TestAnEndpointIsLeftAloneForAsLongAsItAsks(t *testing.T) {
	asks := func(d time.Duration) fsm.EndpointFailure { return fsm.EndpointFailure{RetryAfter: d} }
	for _, tc := range []struct {
		name string
		was  fsm.Endpoint
		do   func(fsm.Endpoint) fsm.Endpoint
		want fsm.Endpoint
	}{
		{
			"it asks for a pause",
			fsm.Endpoint{},
			func(e fsm.Endpoint) fsm.Endpoint { return FailEndpoint(e, moment(0), asks(time.Minute)) },
			fsm.Endpoint{Until: moment(60), Failures: 1, Since: moment(0)},
		},
		{
			"a later answer asks for less",
			fsm.Endpoint{Until: moment(60)},
			func(e fsm.Endpoint) fsm.Endpoint { return FailEndpoint(e, moment(1), asks(time.Second)) },
			fsm.Endpoint{Until: moment(60), Failures: 1, Since: moment(1)},
		},
		{
			"a later answer asks for more",
			fsm.Endpoint{Until: moment(60)},
			func(e fsm.Endpoint) fsm.Endpoint { return FailEndpoint(e, moment(1), asks(time.Minute)) },
			fsm.Endpoint{Until: moment(61), Failures: 1, Since: moment(1)},
		},
		{
			"it asks for too much",
			fsm.Endpoint{},
			func(e fsm.Endpoint) fsm.Endpoint { return FailEndpoint(e, moment(0), asks(5*time.Hour)) },
			fsm.Endpoint{Until: moment(3600), Failures: 1, Since: moment(0)},
		},
		{
			"an answer to a wake asks for a pause",
			fsm.Endpoint{},
			func(e fsm.Endpoint) fsm.Endpoint {
				return FailEndpoint(e, moment(0), fsm.EndpointFailure{RetryAfter: time.Minute, Shown: true})
			},
			fsm.Endpoint{Until: moment(60), Since: moment(0)},
		},
		{
			"an answer that refuses for good asks for none",
			fsm.Endpoint{},
			func(e fsm.Endpoint) fsm.Endpoint {
				return FailEndpoint(e, moment(0), fsm.EndpointFailure{RetryAfter: time.Minute, Refused: true})
			},
			fsm.Endpoint{Since: moment(0), Refused: true},
		},
		{
			"a delivery that began before is taken",
			fsm.Endpoint{Until: moment(60)},
			func(e fsm.Endpoint) fsm.Endpoint { return RecoverEndpoint(e, moment(59)) },
			fsm.Endpoint{Until: moment(60)},
		},
		{
			"a delivery is taken after the pause",
			fsm.Endpoint{Until: moment(60)},
			func(e fsm.Endpoint) fsm.Endpoint { return RecoverEndpoint(e, moment(60)) },
			fsm.Endpoint{},
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
	var e fsm.Endpoint
	fails := func(at int, probe time.Time) { e = FailEndpoint(e, moment(at), fsm.EndpointFailure{Probe: probe}) }
	allowed := func(at int, want bool) (p fsm.Probe) {
		t.Helper()
		if e, p = ProbeEndpoint(e, time.Time{}, moment(at), patience); p.Allowed != want || p.Allowed == (p.Wait > 0) {
			t.Fatalf("after %d s: %+v, want %t; %+v", at, p, want, e)
		}
		return p
	}
	down := func(at int) {
		t.Helper()
		for range fsm.DownAfter - 1 {
			fails(at, time.Time{})
		}
		if p := allowed(at, true); e.Down() || !p.Slot.IsZero() {
			t.Fatalf("after too few failures it is %+v, and a delivery is %+v", e, p)
		}
		if fails(at, time.Time{}); !e.Down() {
			t.Fatalf("after %d failures it is %+v", fsm.DownAfter, e)
		}
	}
	down(0)
	e = RecoverEndpoint(e, moment(0))
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
		e = ReturnProbe(e, moment(at), p.Slot, false)
	})
	t.Run("one that was not sent is followed at once", func(t *testing.T) {
		e = ReturnProbe(e, moment(at), allowed(at, true).Slot, false)
	})
	t.Run("after one that was sent and has not failed, the pauses begin anew", func(t *testing.T) {
		e = ReturnProbe(e, moment(at), allowed(at, true).Slot, true)
		allowed(at, false)
		p := allowed(at+1, true)
		fails(at+1, p.Slot)
		allowed(at+2, false)
		e = ReturnProbe(e, moment(at+3), allowed(at+3, true).Slot, false)
	})
	t.Run("a pause that was asked for goes before", func(t *testing.T) {
		asks := FailEndpoint(e, moment(at), fsm.EndpointFailure{RetryAfter: time.Minute})
		if _, p := ProbeEndpoint(asks, time.Time{}, moment(at+59), patience); p.Allowed || p.Wait != time.Second {
			t.Errorf("%+v", p)
		}
	})
	t.Run("so does one of another endpoint of the origin", func(t *testing.T) {
		was, p := ProbeEndpoint(e, moment(at+60), moment(at+59), patience)
		if p.Allowed || p.Wait != time.Second || was != e {
			t.Errorf("%+v, %+v", p, was)
		}
		if _, p := ProbeEndpoint(fsm.Endpoint{}, moment(at), moment(at), patience); !p.Allowed {
			t.Errorf("after it: %+v", p)
		}
	})
	if e = RecoverEndpoint(e, moment(at)); e != (fsm.Endpoint{}) {
		t.Errorf("after a 2xx it is %+v", e)
	}
}

// TestAnEndpointIsRetried holds what an operator's asking does to an endpoint.
func TestAnEndpointIsRetried(t *testing.T) {
	now := time.UnixMilli(1_790_000_000_000)
	e := RetryEndpoint(fsm.Endpoint{Until: now.Add(time.Hour), Failures: 1, Since: now}, now)
	if (e != fsm.Endpoint{}) {
		t.Errorf("something goes on: %+v", e)
	}
	down := fsm.Endpoint{Failures: fsm.DownAfter, Next: now.Add(time.Minute), Probes: 6}
	if e := RetryEndpoint(down, now); (e != fsm.Endpoint{Failures: fsm.DownAfter, Next: now, Probes: 6}) {
		t.Errorf("one that is down: %+v", e)
	}
	down.Probing = true
	if e := RetryEndpoint(down, now); e != down {
		t.Errorf("one whose probe is out: %+v", e)
	}
}
