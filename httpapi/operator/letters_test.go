package operator_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/httpapi/control"
	"reveille/httpapi/paging"
	"reveille/test/ports"
)

// letters puts n dead letters of each of some streams in the store.
func (h *harness) letters(subscription string, n int, streams ...string) {
	for i := range n {
		for _, path := range streams {
			h.Store.DB.PutLetter(fsm.DeadLetter{
				Subscription: subscription, Generation: "g", Consumer: fsm.ConsumerID(subscription, path), Stream: path,
				DeliveryID: fmt.Sprintf("evt_%s_%d", path, i), From: fsm.Start.At(int64(i), "0009"),
				To: fsm.Start.At(int64(i+1), "0009"), Events: 1, Attempts: 3, Class: "server_error",
				Reason: "status 500", Status: 500, Answer: "it <broke>", FirstFailure: h.Clock().Add(-time.Hour),
			})
		}
	}
}

func TestOperatorListsDeadLetters(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("s", 1)
	streams := []string{"/s/0", "/s/1", "/s/2", "/s/3", "/s/4"}
	h.letters("s", 3, streams...)
	h.letters("gone", 2, "/s/0") // its subscription was deleted
	h.Store.DB.PutLetter(fsm.DeadLetter{
		Subscription: "wakes", Consumer: fsm.ConsumerID("wakes", "/w"), Stream: "/other", From: "4", To: "0009",
		Class: "given_up", Reason: "status 500",
	})
	var want []string
	for _, path := range streams {
		for i := range 3 {
			want = append(want, fmt.Sprintf("evt_%s_%d", path, i))
		}
	}
	slices.Sort(want)
	for _, limit := range []int{1, 4, 100} {
		path := fmt.Sprintf("/api/v1/dead-letters?subscription=s&limit=%d", limit)
		got, lengths := h.Pages(path, "dead_letters", "delivery_id")
		if slices.Max(lengths) > limit {
			t.Errorf("limit %d: pages of %v", limit, lengths)
		}
		for _, path := range streams { // those of a stream come in the order of its events
			of := slices.DeleteFunc(slices.Clone(got), func(id string) bool { return id[:len(id)-2] != "evt_"+path })
			if !slices.IsSorted(of) || len(of) != 3 {
				t.Errorf("limit %d: of %s are listed %q", limit, path, of)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %q are listed", limit, got)
		}
	}
	for query, n := range map[string]int{
		"": 18, "stream=/w": 1, "subscription=gone": 2,
		"stream=/s/0": 5, "stream=/s/0&subscription=s": 3, "stream=/none": 0,
		"subscription=none": 0,
	} {
		if got := len(ports.RowsOf(h.Operator("GET", "/api/v1/dead-letters?"+query, ""), "dead_letters")); got != n {
			t.Errorf("?%s lists %d, want %d", query, got, n)
		}
	}
	row := ports.RowsOf(h.Operator("GET", "/api/v1/dead-letters?subscription=gone&limit=1", ""), "dead_letters")[0]
	one := h.Operator("GET", "/api/v1/dead-letters/"+fmt.Sprint(row["id"]), "").Body
	if fmt.Sprint(one) != fmt.Sprint(row) {
		t.Errorf("one is shown as %v, and in the list as %v", one, row)
	}
	second := ports.RowsOf(h.Operator("GET", "/api/v1/dead-letters?subscription=gone", ""), "dead_letters")[1]
	if second["from"] != "-1" || second["skip"] != 1.0 {
		t.Errorf("the second event of a read is at %v, behind %v others", second["from"], second["skip"])
	}
	for field, want := range map[string]any{
		"subscription_id": "gone", "stream": "/s/0", "consumer_id": "gone:%2Fs%2F0", "from": "-1",
		"events": 1.0, "attempts": 3.0, "class": "server_error", "reason": "status 500", "status_code": 500.0,
		"response_body": "it <broke>",
	} {
		if one[field] != want {
			t.Errorf("%s is %v, want %v", field, one[field], want)
		}
	}
	wide := ports.RowsOf(h.Operator("GET", "/api/v1/dead-letters?subscription=wakes", ""), "dead_letters")[0]
	if one["to"] != nil || wide["events"] != 0.0 || wide["to"] != "0009" || wide["stream"] != "/other" {
		t.Errorf("one whose events nobody has counted is shown as %v", wide)
	}
	for _, path := range []string{"/api/v1/subscriptions/s", "/api/v1/subscriptions"} {
		a := h.Operator("GET", path, "")
		body := a.Body
		if rows := ports.RowsOf(a, "subscriptions"); len(rows) > 0 {
			body = rows[0]
		}
		if body["dead_letters"] != 15.0 {
			t.Errorf("%s counts %v", path, body["dead_letters"])
		}
	}
}

func TestOperatorDiscardsDeadLetters(t *testing.T) {
	h := newHarness(t, nil)
	h.letters("s", 3, "/s/0", "/s/1")
	h.letters("other", 1, "/s/0")
	left := func() int { return len(ports.RowsOf(h.Operator("GET", "/api/v1/dead-letters", ""), "dead_letters")) }
	id := fmt.Sprint(ports.RowsOf(h.Operator("GET", "/api/v1/dead-letters?stream=/s/1", ""), "dead_letters")[1]["id"])
	if a := h.Operator("DELETE", "/api/v1/dead-letters/"+id, ""); a.Body["discarded"] != 1.0 || left() != 6 {
		t.Errorf("one was discarded: %s, and %d are left", a.Text, left())
	}
	h.Want(h.Operator("DELETE", "/api/v1/dead-letters/"+id, ""), 404, fsm.CodeNotFound, "no dead letter")
	h.Want(h.Operator("GET", "/api/v1/dead-letters/"+id, ""), 404, fsm.CodeNotFound, "no dead letter")
	h.Want(h.Operator("GET", "/api/v1/dead-letters/17", ""), 400, fsm.CodeInvalidRequest, "no id of a dead letter")
	h.Want(h.Operator("GET", "/api/v1/dead-letters?stream=a", ""), 400, fsm.CodeInvalidPath, "stream")
	h.Want(h.Operator("GET", "/api/v1/dead-letters?subscription=a:b", ""), 400, fsm.CodeInvalidSubscriptionID,
		"subscription")
	for body, says := range map[string]string{
		`{}`: "subscription", `{"subscription":7}`: "subscription", `{"subscription":"s","since":"noon"}`: "since",
		`{"subscription":"s","which":"all"}`: "which", `{"subscription":"s","cursor":"x"}`: "cursor",
		`{"subscription":"s","cursor":"` + paging.Place{Through: -1}.String() + `"}`: "cursor",
	} {
		h.Want(h.Operator("POST", "/api/v1/dead-letters/discard", body), 400, fsm.CodeInvalidRequest, says)
	}
	h.Want(h.Operator("POST", "/api/v1/dead-letters/discard", `{"subscription":"misspelt"}`), 404,
		fsm.CodeSubscriptionNotFound, "")
	a := h.Operator("POST", "/api/v1/dead-letters/discard", `{"subscription":"s","stream":"/s/1"}`)
	if a.Body["discarded"] != 2.0 || left() != 4 {
		t.Errorf("those of a stream: %s, and %d are left", a.Text, left())
	}
	a = h.Operator("POST", "/api/v1/dead-letters/discard", `{"subscription":"s"}`)
	if a.Body["discarded"] != 3.0 || left() != 1 {
		t.Errorf("all of a subscription: %s, and %d are left", a.Text, left())
	}
}

// replayable puts n dead letters of each of some streams in the store whose events can be read.
func (h *harness) replayable(subscription string, n int, streams ...string) {
	for _, path := range streams {
		for i := range n {
			h.Store.DB.PutLetter(fsm.DeadLetter{
				Subscription: subscription, Generation: "g-" + subscription, Stream: path,
				Consumer: fsm.ConsumerID(subscription, path), From: fsm.Start.At(int64(i), "0009"),
				To: fsm.Start.At(int64(i+1), "0009"), Within: fsm.Start.At(int64(i+1), "0009"), Reason: "status 500",
			})
		}
	}
}

// TestWhatIsDiscardedIsNotReplayedMeanwhile holds that no replay begins while what waits for one is discarded, however
// many calls of the store that takes.
func TestWhatIsDiscardedIsNotReplayedMeanwhile(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("s", 1)
	const letters = 2*control.DiscardedAtATime + 1
	h.replayable("s", letters, "/s/0")
	if a := h.Operator("POST", "/api/v1/dead-letters/replay", `{"subscription":"s"}`); a.Body["queued"] != letters+0.0 {
		t.Fatalf("to be replayed: %s", a.Text)
	}
	h.Rec.ForgetCalls()
	a := h.Operator("POST", "/api/v1/dead-letters/discard", `{"subscription":"s"}`)
	if noted := h.Rec.Noted(); a.Body["discarded"] != letters+0.0 || len(noted) > 0 {
		t.Errorf("discarded: %s; meanwhile: %q", a.Text, noted)
	}
}

func TestOperatorReplaysDeadLetters(t *testing.T) {
	h := newHarness(t, nil)
	h.Subscribe("s", 2)
	h.replayable("s", 2, "/s/0", "/s/1", "/s/9") // the last has no consumer
	ids := func(stream string) (ids []string) {
		for _, row := range ports.RowsOf(h.Operator("GET", "/api/v1/dead-letters?stream="+stream, ""), "dead_letters") {
			ids = append(ids, fmt.Sprint(row["id"]))
		}
		return ids
	}
	if a := h.Operator("POST", "/api/v1/dead-letters/"+ids("/s/0")[0]+"/replay", ""); a.Status != 202 ||
		a.Body["queued"] != 1.0 {
		t.Errorf("one: %d %s", a.Status, a.Text)
	}
	h.Want(h.Operator("POST", "/api/v1/dead-letters/"+ids("/s/9")[0]+"/replay", ""), 409, fsm.CodeReplayRefused,
		"is gone")
	h.Want(h.Operator("POST", "/api/v1/dead-letters/dl_0_1/replay", ""), 404, fsm.CodeNotFound, "no dead letter")
	for body, says := range map[string]string{
		`{}`: "subscription", `{"subscription":"s","cursor":"x"}`: "cursor",
		`{"subscription":"s","which":"all"}`: "which",
	} {
		h.Want(h.Operator("POST", "/api/v1/dead-letters/replay", body), 400, fsm.CodeInvalidRequest, says)
	}
	a := h.Operator("POST", "/api/v1/dead-letters/replay", `{"subscription":"s"}`)
	if a.Status != 202 || a.Body["queued"] != 4.0 || a.Body["refused"] != 2.0 || a.Body["next"] != nil {
		t.Errorf("all: %d %s", a.Status, a.Text)
	}
	h.Subscribe("none", 0)
	if a := h.Operator("POST", "/api/v1/dead-letters/replay", `{"subscription":"none"}`); a.Body["queued"] != 0.0 {
		t.Errorf("of a subscription without any: %s", a.Text)
	}
}

// TestOperatorFiltersDeadLettersByTime holds that since is inclusive and until is not, for the list and for what
// changes letters.
func TestOperatorFiltersDeadLettersByTime(t *testing.T) {
	h := newHarness(t, nil)
	h.letters("s", 3, "/s/0")
	rows := ports.RowsOf(h.Operator("GET", "/api/v1/dead-letters", ""), "dead_letters")
	second := fmt.Sprint(rows[1]["dead_at"])
	listed := func(query string) (ids []string) {
		for _, row := range ports.RowsOf(h.Operator("GET", "/api/v1/dead-letters?"+query, ""), "dead_letters") {
			ids = append(ids, fmt.Sprint(row["id"]))
		}
		return ids
	}
	for query, want := range map[string][]string{
		"since=" + second:                      {fmt.Sprint(rows[1]["id"]), fmt.Sprint(rows[2]["id"])},
		"until=" + second:                      {fmt.Sprint(rows[0]["id"])},
		"since=" + second + "&until=" + second: nil,
	} {
		if got := listed(query); !slices.Equal(got, want) {
			t.Errorf("?%s lists %q, want %q", query, got, want)
		}
	}
	h.Want(h.Operator("GET", "/api/v1/dead-letters?since=17", ""), 400, fsm.CodeInvalidRequest, "since")
	a := h.Operator("POST", "/api/v1/dead-letters/discard", `{"subscription":"s","until":"`+second+`"}`)
	if left := listed(""); a.Body["discarded"] != 1.0 || len(left) != 2 || left[0] != fmt.Sprint(rows[1]["id"]) {
		t.Errorf("discarded: %s, left are %q", a.Text, left)
	}
}
