package operator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/test/ports"
)

// TestTheAuditIsListed holds its order, its pages, and what narrows it down.
func TestTheAuditIsListed(t *testing.T) {
	h := newHarness(t, nil)
	var want, of []string
	for i := range 2*control.ChangesAtATime + 7 {
		h.Pass(time.Minute)
		sub := fmt.Sprint("s", i%3)
		what := fmt.Sprint(i)
		c := fsm.Change{What: what, Subscription: sub, From: "192.0.2.7"}
		if err := h.Store.NoteChange(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if want = append([]string{what}, want...); sub == "s1" {
			of = append([]string{what}, of...)
		}
	}
	for query, want := range map[string][]string{
		"": want, "subscription=s1": of, "subscription=none": nil, "since=" + h.ago(4): want[:5],
		"until=" + h.ago(4): want[5:],
	} {
		for _, limit := range []int{7, 100, 1000} {
			got, lengths := h.Pages(fmt.Sprintf("/api/v1/audit?limit=%d&%s", limit, query), "changes", "what")
			if !slices.Equal(got, want) || slices.Max(lengths) > limit {
				t.Errorf("?%s, %d at a time: pages of %v, with %q", query, limit, lengths, got)
			}
		}
	}
	row := ports.RowsOf(h.Operator("GET", "/api/v1/audit?limit=1", ""), "changes")[0]
	if row["at"] != h.Clock().Format(time.RFC3339) || row["from"] != "192.0.2.7" {
		t.Errorf("one is shown as %v", row)
	}
	for query, says := range map[string]string{
		"since=1h": "since must be a time", "until=1h": "until must be a time", "who=me": `"who" is not a parameter`,
		"cursor=" + paging.Place{After: "(+"}.String(): "cursor must be the next of an earlier answer",
	} {
		h.Want(h.Operator("GET", "/api/v1/audit?"+query, ""), 400, fsm.CodeInvalidRequest, says)
	}
}

// TestAChangeStandsThatTheAuditLacks holds that it is logged, with who has made it.
func TestAChangeStandsThatTheAuditLacks(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("s", 0)
	h.Store.DB.SetHooks(memstore.Hooks{Before: func(c memstore.Call) error {
		if c.Method == "NoteChange" {
			return fsm.ErrUnavailable
		}
		return nil
	}})
	if a := h.Operator("POST", "/api/v1/subscriptions/s/pause", ""); a.Status != 200 {
		t.Errorf("the pause: %d %s", a.Status, a.Text)
	}
	if !h.Store.DB.Subscriptions()["s"].Paused {
		t.Error("it is not paused")
	}
	lines := h.Logs.FilterLevelExact(zap.WarnLevel).All()
	if len(lines) != 1 || !strings.Contains(lines[0].Message, "missing from the audit") ||
		lines[0].ContextMap()["from"] != "192.0.2.1" {
		t.Errorf("logged is %v", lines)
	}
}

// TestADeletionThatIsCutShortIsNoted holds that it is, although the client is told to try again.
func TestADeletionThatIsCutShortIsNoted(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("s", 1)
	h.Store.Cut = true
	if a := h.API("DELETE", "/s/*?subscription=s", ""); a.Status != 503 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	list, err := h.Store.Changes(t.Context(), "", 10)
	if err != nil || len(list) != 1 || list[0].What != "subscription deleted, perhaps in part" {
		t.Errorf("%v, %+v", err, list)
	}
}

// TestALongChangeIsCutShort holds that no client can fill Redis by changes.
func TestALongChangeIsCutShort(t *testing.T) {
	h := newHarness(t, nil)
	fields := map[string]string{}
	for i := range 15 {
		fields[fmt.Sprint("X-Header-Number-", i, strings.Repeat("x", 150))] = "v"
	}
	text, _ := json.Marshal(map[string]any{"webhook": "https://w.example/hook", "headers": fields})
	if a := h.API("PUT", "/a/*?subscription=s", string(text)); a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	list, err := h.Store.Changes(t.Context(), "", 1)
	if err != nil || len(list) != 1 || !strings.Contains(string(list[0].After), `"headers":"(long)"`) {
		t.Errorf("%v, %+v", err, list)
	}
	var streams []string
	for i := range 20 {
		streams = append(streams, fmt.Sprint("/", i, strings.Repeat("x", 200)))
	}
	text, _ = json.Marshal(map[string]any{"streams": streams})
	if a := h.Operator("POST", "/api/v1/streams", string(text)); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Text)
	}
	if list, err = h.Store.Changes(t.Context(), "", 1); err != nil || len(list[0].About) > 1100 ||
		!strings.HasSuffix(list[0].About, "…") {
		t.Errorf("%v, %+v", err, list)
	}
}
