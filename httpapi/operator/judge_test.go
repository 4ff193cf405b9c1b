package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/refusal"
	"reveille/test/ports"
)

// TestASubscriptionShowsTheWorstOfAllItsConsumers holds what is made of the counts, and of the endpoint.
func TestASubscriptionShowsTheWorstOfAllItsConsumers(t *testing.T) {
	for _, c := range []struct {
		name                 string
		tally                fsm.Tally
		down, waits, refuses bool
		fails, paused        bool
		want                 fsm.Condition
	}{
		{name: "nobody", want: "ok"},
		{name: "all are well", tally: fsm.Tally{Consumers: 9, Waking: 3, Live: 2}, want: "ok"},
		{name: "a stream is gone", tally: fsm.Tally{Consumers: 9, Hidden: 1}, want: "ok"},
		{name: "one of many fails", tally: fsm.Tally{Consumers: 1e6, Failing: 1}, want: "failing"},
		{name: "only an aside fails", tally: fsm.Tally{Consumers: 9, Asides: 1, Failing: 1}, want: "failing"},
		{name: "one is retired, others fail", tally: fsm.Tally{Consumers: 9, Failing: 8, Retired: 1}, want: "retired"},
		{name: "the endpoint is down", tally: fsm.Tally{Consumers: 9, Failing: 8}, down: true, want: "down"},
		{name: "it has asked to wait", tally: fsm.Tally{Consumers: 9, Failing: 8}, waits: true, want: "asked_to_wait"},
		{name: "it is down, too", tally: fsm.Tally{Consumers: 9}, down: true, waits: true, want: "down"},
		{name: "it is down and retired", tally: fsm.Tally{Consumers: 9, Retired: 1}, down: true, want: "retired"},
		{name: "it refuses", tally: fsm.Tally{Consumers: 9, Failing: 1}, refuses: true, want: "refusing"},
		{name: "it refuses, and has asked to wait", refuses: true, waits: true, want: "refusing"},
		{name: "it is down, and refuses", refuses: true, down: true, want: "down"},
		{name: "it fails, of whatever consumer", fails: true, want: "failing"},
		{name: "it is paused", paused: true, want: "paused"},
		{name: "it is paused, and refuses", paused: true, refuses: true, want: "refusing"},
	} {
		now := time.Now()
		e := fsm.EndpointNow{Endpoint: fsm.Endpoint{Refused: c.refuses}, Now: now}
		if c.down {
			e.Failures = fsm.DownAfter
		}
		if c.waits {
			e.Until = now.Add(time.Second)
		}
		if c.fails || c.refuses || c.down || c.waits {
			e.Since, e.Reason = now.Add(-time.Minute), "status 404"
		}
		b := SubscriptionBody{Paused: c.paused}
		b.judge(c.tally, e)
		if b.Condition != c.want {
			t.Errorf("%s: %s, want %s", c.name, b.Condition, c.want)
		}
		if (b.FailingSince != nil) != !e.Since.IsZero() || c.refuses && !c.down && b.LastError != "status 404" {
			t.Errorf("%s: since %v, %q", c.name, b.FailingSince, b.LastError)
		}
	}
}

// TestCountsThatAreNotCompleteAreAnError holds that a page whose time is over shows no count.
func TestCountsThatAreNotCompleteAreAnError(t *testing.T) {
	h := ports.New(t)
	h.Subscribe("a", 1)
	subs := h.Store.Catalog().All()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	_, err := (&Face{Control: &control.Service{View: control.NewView(h.Store, h.Rec)}}).show(ctx, subs)
	var r *refusal.Error
	if !errors.As(err, &r) || r.Code != fsm.CodeUnavailable || !strings.Contains(r.Message, "counted within 20s") {
		t.Errorf("late, it answers %v", err)
	}
}
