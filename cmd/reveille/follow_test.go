package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

// attemptLog is an operator port that lists delivery attempts, the latest first, some on a page. An entry is the ID of
// its subscription and its own; an empty entry is one that a filter leaves out.
type attemptLog struct {
	list   []string
	atOnce int
	asOf   int64
	asked  int
	fails  string
}

func (a *attemptLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.asked++; a.fails != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, `{"error":{"code":%q,"message":"redis is away"}}`, a.fails)
		return
	}
	from := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &from)
	since, _ := time.Parse(time.RFC3339Nano, r.URL.Query().Get("stored_since"))
	list := slices.DeleteFunc(slices.Clone(a.list), func(entry string) bool {
		_, id, _ := strings.Cut(entry, " ")
		return !since.IsZero() && fsm.LogMillis(id) < since.UnixMilli()
	})
	to := min(from+a.atOnce, len(list))
	rows := []map[string]any{}
	for _, entry := range list[from:to] {
		if sub, id, there := strings.Cut(strings.TrimPrefix(entry, "-"), " "); there && entry[0] != '-' {
			rows = append(rows, map[string]any{
				"id": id, "subscription_id": sub, "delivery_id": "d" + id, "result": "done", "attempt": 1,
			})
		}
	}
	body := map[string]any{"deliveries": rows, "as_of": time.UnixMilli(a.asOf)}
	if to < len(list) {
		body["next"] = fmt.Sprint(to)
	}
	_ = json.NewEncoder(w).Encode(body)
}

// TestAFollowerShowsEachNewAttemptOnce holds it for attempts that are stored beside one another, or late, and for more
// of them than a page has. What the first page did not show stays unshown. No look goes through the whole log.
func TestAFollowerShowsEachNewAttemptOnce(t *testing.T) {
	old := slices.Repeat([]string{"- 1-0"}, 100)
	for name, rounds := range map[string][]struct {
		asOf       int64
		list, want []string
	}{
		"many": {
			{95500, []string{"a 95000-1", "a 95000-0", "b 94000-0", "c 94000-0", "b 1-0"}, []string{
				"a 95000-1", "a 95000-0", "b 94000-0",
			}},
			{96000, []string{"a 95000-1", "a 95000-0", "b 94000-0", "c 94000-0", "b 1-0"}, nil},
			{97000, []string{"b 95000-1", "a 95000-1", "a 95000-0", "c 94500-0", "b 94000-0", "c 94000-0"}, []string{
				"b 95000-1", "c 94500-0",
			}},
			{98000, []string{"b 96001-0", "b 96000-4", "b 96000-3", "a 96000-3", "b 95000-1", "a 95000-1"}, []string{
				"b 96001-0", "b 96000-4", "b 96000-3", "a 96000-3",
			}},
			{111000, []string{"b 110000-0", "b 96001-0"}, []string{"b 110000-0"}},
			{112000, []string{"b 110000-0", "c 99999-0", "b 96001-0"}, nil},
		},
		"none at first": {
			{100000, old, nil},
			{101000, append([]string{"a 100500-0", "a 80000-0"}, old...), []string{"a 100500-0"}},
			{102000, append([]string{"a 100500-0", "a 80000-0"}, old...), nil},
		},
	} {
		log := &attemptLog{atOnce: 3}
		server := httptest.NewServer(log)
		f := newFollower(&cli{addr: server.URL, now: time.Now}, "/api/v1/deliveries?limit=3")
		for i, round := range rounds {
			log.list, log.asOf, log.asked = round.list, round.asOf, 0
			fresh, err := f.look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range fresh {
				got = append(got, a.Subscription+" "+a.ID)
			}
			if !slices.Equal(got, round.want) {
				t.Errorf("%s, look %d shows %q, want %q", name, i+1, got, round.want)
			}
			if log.asked > 3 {
				t.Errorf("%s, look %d reads %d pages", name, i+1, log.asked)
			}
		}
		if len(f.shown) != 1 {
			t.Errorf("%s: it keeps %v", name, f.shown)
		}
		server.Close()
	}
}

// TestAFollowerOutlivesAShortOutage holds that it ends when it was never answered, when it is refused, and after a
// minute.
func TestAFollowerOutlivesAShortOutage(t *testing.T) {
	log, now := &attemptLog{atOnce: 3, fails: "UNAVAILABLE"}, time.UnixMilli(0)
	server := httptest.NewServer(log)
	defer server.Close()
	f := newFollower(&cli{addr: server.URL, now: func() time.Time { return now }}, "/api/v1/deliveries?limit=3")
	goesOn := func(when string, want bool) {
		t.Helper()
		_, err := f.look(t.Context())
		if err == nil || f.goesOn(err) != want {
			t.Errorf("%s, it goes on: %t, want %t: %v", when, !want, want, err)
		}
	}
	goesOn("at first", false)
	log.fails = ""
	if _, err := f.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.fails, now = "UNAVAILABLE", now.Add(followPatience-time.Second)
	goesOn("while Redis is away", true)
	log.fails = "SUBSCRIPTION_NOT_FOUND"
	goesOn("once it is refused", false)
	server.Close()
	goesOn("while nobody answers", true)
	now = now.Add(time.Second)
	goesOn("after a minute", false)
	if _, err := f.look(t.Context()); !errors.Is(err, errNoAnswer) {
		t.Errorf("the error is %v", err)
	}
}

// TestFollowPrintsTheLatestAtTheBottom holds it for both forms of the output.
func TestFollowPrintsTheLatestAtTheBottom(t *testing.T) {
	for form, want := range map[output]string{
		outputText: "a  d1-0  1  done  0s\nb  d2-0  1  done  0s\n",
		outputJSON: `{"attempt":1,"delivery_id":"d1-0","id":"1-0","result":"done","subscription_id":"a"}` + "\n" +
			`{"attempt":1,"delivery_id":"d2-0","id":"2-0","result":"done","subscription_id":"b"}` + "\n",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		log := &attemptLog{atOnce: 3, list: []string{"b 2-0", "a 1-0"}, asOf: 3}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if log.asked == 1 {
				cancel()
			}
			log.ServeHTTP(w, r)
		}))
		var out strings.Builder
		c := &cli{addr: server.URL, out: &out, now: time.Now, output: form, limit: 3}
		if err := c.followDeliveries(ctx, "/api/v1/deliveries?limit=3"); err != nil || out.String() != want {
			t.Errorf("%s: %v, %q, want %q", form, err, out.String(), want)
		}
		server.Close()
	}
}
