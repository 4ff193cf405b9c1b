package cache

import (
	"testing"
	"time"

	"reveille/fsm"
)

// moment is one some seconds after another.
func moment(seconds int) time.Time { return time.Unix(1_790_000_000+int64(seconds), 0) }

// TestLaterNewsOfAnEndpointCounts has a replica hear of an endpoint from its own calls and from the list, in whichever
// order they come.
func TestLaterNewsOfAnEndpointCounts(t *testing.T) {
	paused := func(version int64, until int) fsm.EndpointState {
		return fsm.EndpointState{Endpoint: fsm.Endpoint{Until: moment(until)}, Generation: "g", Version: version}
	}
	works := func(version int64) fsm.EndpointState { return fsm.EndpointState{Generation: "g", Version: version} }
	for _, tc := range []struct {
		name string
		do   func(*Endpoints)
		want fsm.Endpoint
	}{
		{"nothing is known", func(*Endpoints) {}, fsm.Endpoint{}},
		{"an answer", func(v *Endpoints) { v.Note(paused(1, 10), moment(0)) }, fsm.Endpoint{Until: moment(10)}},
		{"a late answer", func(v *Endpoints) {
			v.Note(paused(2, 20), moment(0))
			v.Note(paused(1, 10), moment(0))
		}, fsm.Endpoint{Until: moment(20)}},
		{"a late answer that it works", func(v *Endpoints) {
			v.Note(paused(2, 20), moment(0))
			v.Note(works(1), moment(0))
		}, fsm.Endpoint{Until: moment(20)}},
		{"an answer that is older than the list", func(v *Endpoints) {
			v.Replace(nil, 2, moment(0))
			v.Note(paused(1, 10), moment(0))
		}, fsm.Endpoint{}},
		{"a change that is older than an answer", func(v *Endpoints) {
			v.Replace(nil, 1, moment(0))
			v.Note(paused(3, 30), moment(0))
			v.Change([]fsm.EndpointState{paused(2, 20)}, 2, moment(0))
		}, fsm.Endpoint{Until: moment(30)}},
		{"a change that it works", func(v *Endpoints) {
			v.Note(paused(1, 10), moment(0))
			v.Change([]fsm.EndpointState{works(2)}, 2, moment(0))
		}, fsm.Endpoint{}},
		{"a list of a store that has lost its latest changes", func(v *Endpoints) {
			v.Note(paused(3, 10), moment(0))
			v.Replace(nil, 1, moment(0))
		}, fsm.Endpoint{}},
		{"an answer of such a store", func(v *Endpoints) {
			v.Replace([]fsm.EndpointState{paused(3, 10)}, 3, moment(0))
			v.Replace(nil, 1, moment(0))
			v.Note(works(1), moment(0))
		}, fsm.Endpoint{}},
	} {
		v := NewEndpoints()
		tc.do(v)
		got, now, trouble := v.Get("g")
		if got != tc.want || trouble != (tc.want != fsm.Endpoint{}) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
		if trouble && (now.Before(moment(0)) || now.After(moment(9))) {
			t.Errorf("%s: the store's clock is said to be at %s", tc.name, now)
		}
	}
}
