package cache

import (
	"testing"
	"time"

	"reveille/fsm"
)

// TestAPauseHoldsForEachSubscriptionOfItsOrigin has a replica hear of pauses from its own answers, its own calls, and
// the list, in whichever order they come.
func TestAPauseHoldsForEachSubscriptionOfItsOrigin(t *testing.T) {
	asked := fsm.Subscription{Generation: "g", Webhook: "https://example.com/a"}
	const origin = "https://example.com:443"
	listed := func(v *Endpoints, version int64, until int) {
		all := map[string]time.Time{"https://other.example:443": moment(99)}
		if until > 0 {
			all[origin] = moment(until)
		}
		v.ReplacePauses(all, version, moment(0))
		v.Change(nil, version, moment(0))
	}
	for _, tc := range []struct {
		name string
		do   func(*Endpoints)
		want int // until about when, 0 for not
		told bool
	}{
		{"nothing is known", func(*Endpoints) {}, 0, false},
		{"the list has it", func(v *Endpoints) { listed(v, 1, 10) }, 10, true},
		{"it is over", func(v *Endpoints) { listed(v, 1, -10) }, 0, false},
		{"the list has it no more", func(v *Endpoints) {
			listed(v, 1, 10)
			listed(v, 2, 0)
		}, 0, false},
		{"an answer asks for it", func(v *Endpoints) {
			listed(v, 1, 0)
			v.Pause(asked, 10*time.Second)
		}, 10, false},
		{"the list does not have it yet", func(v *Endpoints) {
			v.Pause(asked, 10*time.Second)
			listed(v, 1, 0)
		}, 10, false},
		{"a list from before the store was told", func(v *Endpoints) {
			listed(v, 1, 0)
			v.Pause(asked, 10*time.Second)
			v.NotePause(asked, moment(10), 3, true)
			listed(v, 2, 0)
		}, 10, true},
		{"the reply to another call", func(v *Endpoints) {
			listed(v, 1, 0)
			v.Pause(asked, 10*time.Second)
			v.NotePause(asked, time.Time{}, 2, false)
		}, 10, false},
		{"a shorter one", func(v *Endpoints) {
			listed(v, 1, 20)
			v.Pause(asked, 10*time.Second)
		}, 20, true},
		{"the store knows of a shorter one", func(v *Endpoints) {
			listed(v, 1, 0)
			v.Pause(asked, 20*time.Second)
			v.NotePause(asked, moment(10), 3, false)
		}, 20, false},
		{"a late reply", func(v *Endpoints) {
			listed(v, 2, 20)
			v.NotePause(asked, moment(10), 1, true)
		}, 20, true},
		{"an operator ends it", func(v *Endpoints) {
			listed(v, 1, 0)
			v.Pause(asked, 10*time.Second)
			v.NotePause(asked, time.Time{}, 2, true)
		}, 0, false},
		{"a list from before an operator ended it", func(v *Endpoints) {
			listed(v, 1, 0)
			v.NotePause(asked, time.Time{}, 3, true)
			listed(v, 2, 10)
		}, 0, false},
		{"a later list than that", func(v *Endpoints) {
			v.NotePause(asked, time.Time{}, 3, true)
			listed(v, 4, 10)
		}, 10, true},
		{"a store that has lost its latest changes", func(v *Endpoints) {
			listed(v, 3, 10)
			listed(v, 1, 0)
		}, 0, false},
	} {
		v := NewEndpoints()
		v.Change(nil, 0, moment(0))
		tc.do(v)
		for _, webhook := range []string{"https://example.com/a", "HTTPS://EXAMPLE.com.:443/b?c"} {
			sub := fsm.Subscription{Generation: "another", Webhook: webhook}
			rest, told := v.Paused(sub)
			e, want := v.Of(sub), time.Duration(tc.want)*time.Second
			if (rest-want).Abs() > time.Second || rest > 0 && want == 0 || told != tc.told {
				t.Errorf("%s: %s waits for %s, and the store has told: %t", tc.name, webhook, rest, told)
			}
			if e.AskedToWait(e.Now) != (tc.want > 0) || !e.Since.IsZero() {
				t.Errorf("%s: %s is %+v", tc.name, webhook, e)
			}
		}
		for _, webhook := range []string{"https://example.com:8443/a", "http://example.com/a", "no URL"} {
			sub := fsm.Subscription{Webhook: webhook}
			if rest, _ := v.Paused(sub); rest != 0 || v.Of(sub) != (fsm.EndpointNow{}) {
				t.Errorf("%s: %s waits for %s", tc.name, webhook, rest)
			}
		}
	}
}

// TestWhatAPauseHoldsIsCountedForItsOrigin holds what deliveries are spread by: those of all subscriptions count
// together, those that have failed before apart, and a longer pause begins anew.
func TestWhatAPauseHoldsIsCountedForItsOrigin(t *testing.T) {
	v := NewEndpoints()
	a := fsm.Subscription{Generation: "a", Webhook: "https://example.com/a"}
	b := fsm.Subscription{Generation: "b", Webhook: "https://example.com/b"}
	want := func(sub fsm.Subscription, again bool, n int) {
		t.Helper()
		if got := v.Hold(sub, again); got != n {
			t.Errorf("%s (again: %t) is the number %d, want %d", sub.Generation, again, got, n)
		}
	}
	v.Note(fsm.EndpointState{Endpoint: fsm.Endpoint{Failures: fsm.DownAfter}, Generation: "a", Version: 1}, moment(0))
	want(a, false, 1)
	want(a, false, 2)
	want(b, false, 1)
	v.Pause(b, time.Minute)
	want(a, false, 1)
	want(b, false, 2)
	want(b, true, 1)
	v.NotePause(b, moment(10), 2, false) // shorter
	want(a, false, 3)
	v.NotePause(b, moment(600), 3, true)
	want(b, false, 1)
}
