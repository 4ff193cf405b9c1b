package e2e

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"reveille/test/anycable"
	"reveille/test/harness"
)

// TestWhereASubscriptionBegins is about "start": where a subscription begins in streams that were there before it.
func TestWhereASubscriptionBegins(t *testing.T) {
	t.Parallel()
	e := shared(t)
	old, later := []string{`{"n":1}`, `{"n":2}`, `{"n":3}`}, `{"n":4}`
	for name, tt := range map[string]struct {
		// pattern is the stream itself, or its folder.
		literal bool
		// at is how many events lie before the offset that is asked for; start is what is asked for otherwise.
		at    int
		start string
		// skips is how many events do not come.
		skips int
	}{
		"from the start of each stream":          {start: "-1"},
		"from the start of one stream":           {literal: true, start: "-1"},
		"from an offset in the middle":           {literal: true, at: 2, skips: 2},
		"from the offset that is its tail":       {literal: true, at: 3, skips: 3},
		"from an offset beyond its tail":         {literal: true, start: "9999999999999999_9999999999999999"},
		"from now on":                            {start: "now", skips: 3},
		"from now on, if nothing is asked for":   {skips: 3},
		"from now on in one stream, unasked for": {literal: true, skips: 3},
	} {
		// prepare makes the stream and returns the subscription's pattern, the body of its PUT, and where it begins.
		prepare := func(s *fixture, fields map[string]any) (pattern, body, from string) {
			offsets := []string{"-1"}
			s.gateway.Create(s.path)
			for _, event := range old {
				offsets = append(offsets, s.gateway.Append(s.path, event))
			}
			fields, start := maps.Clone(fields), tt.start
			if tt.at > 0 {
				start = offsets[tt.at]
			}
			if start != "" {
				fields["start"] = start
			}
			if pattern = s.folder + "/*"; tt.literal {
				pattern = s.path
			}
			return pattern, jsonOf(s.t, fields), offsets[tt.skips]
		}
		t.Run("a worker is woken "+name, func(t *testing.T) {
			t.Parallel()
			s := e.empty(t)
			pattern, body, from := prepare(s, map[string]any{"webhook": s.worker.URL})
			s.subscribeTo(pattern, body)
			if tt.skips == len(old) {
				s.gateway.Append(s.path, later)
			}
			wake := s.worker.Wake(1)
			if wake.PrimaryStream != s.path || wake.Offset(s.path) != from {
				t.Errorf("it is woken for %s, from %s, want %s", wake.PrimaryStream, wake.Offset(s.path), from)
			}
			events, next := s.streams.Read(s.path, wake.Offset(s.path))
			if want := max(len(old)-tt.skips, 1); len(events) != want {
				t.Errorf("the wake leads to %s, want %d events", events, want)
			}
			s.wantStreams(s.callback(wake, wake.Claim(true, at(s.path, next))), at(s.path, next))
		})
		t.Run("events are pushed "+name, func(t *testing.T) {
			t.Parallel()
			p := &pushed{fixture: e.empty(t), receiver: harness.NewReceiver(t)}
			pattern, body, _ := prepare(p.fixture, map[string]any{"mode": "push", "webhook": p.receiver.URL})
			p.subscribeTo(pattern, body)
			p.gateway.Append(p.path, later)
			p.want(p.path, append(slices.Clone(old[tt.skips:]), later))
		})
	}

	t.Run("a stream that comes after its subscription begins at its start, whatever was asked for", func(t *testing.T) {
		p := &pushed{fixture: e.empty(t), receiver: harness.NewReceiver(t)}
		p.subscribeTo(p.path, jsonOf(t, map[string]any{
			"mode": "push", "webhook": p.receiver.URL, "start": "0000000000000000_0000000000000001",
		}))
		p.gateway.Create(p.path)
		events := p.add(p.path, 0, 3)
		p.want(p.path, events)
		// So does the one that takes its place.
		p.gateway.DeleteStream(p.path)
		p.gateway.Create(p.path)
		p.want(p.path, append(events, p.add(p.path, 3, 5)...))
	})
}

// subscribeTo creates the subscription of a fixture.
func (s *fixture) subscribeTo(pattern, body string) {
	s.t.Helper()
	a := s.gateway.PutSubscription(pattern, s.sub.ID, body)
	if a.Status != http.StatusCreated {
		s.t.Fatalf("PUT: %d %s", a.Status, a.Body)
	}
	a.Decode(s.t, &s.sub)
	s.worker.Trust(s.sub.ID, s.sub.Secret)
}

// TestWhereASubscriptionBeginsInAStreamOfAnyCable is about offsets that do not sort as they are, and events that are
// not kept.
func TestWhereASubscriptionBeginsInAStreamOfAnyCable(t *testing.T) {
	t.Parallel()
	c := startBroker(t, anycable.Options{History: 10}, nil, nil)
	tail := ""
	for n := range 12 {
		tail = c.server.Publish("t1", strconv.Itoa(n+1))
	}
	_, epoch, _ := strings.Cut(tail, "::")
	for i, tt := range []struct {
		name, start string
		first       int
	}{
		{"from the start", "-1", 3},
		{"from an offset", "9::" + epoch, 10},
		{"from one that is not kept", "1::" + epoch, 3},
		{"from one beyond its tail", "13::" + epoch, 3},
		{"from one of an earlier broker", "9::gone", 3},
	} {
		receiver := harness.NewReceiver(t)
		a := c.gateway.PutSubscription("/t1", "s"+strconv.Itoa(i), jsonOf(t, map[string]any{
			"mode": "push", "webhook": receiver.URL, "start": tt.start,
		}))
		if a.Status != http.StatusCreated {
			t.Fatalf("%s: PUT: %d %s", tt.name, a.Status, a.Body)
		}
		var want []string
		for n := tt.first; n <= 12; n++ {
			want = append(want, strconv.Itoa(n))
		}
		if _, events := receiver.Await("/t1", len(want)); !slices.Equal(events, want) {
			t.Errorf("%s: it took %q, want %q", tt.name, events, want)
		}
	}
}
