package redisstore_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// TestTheAuditIsKept holds that changes are read as they were, the latest first and page by page, and that there are
// not more of them than there may be.
func TestTheAuditIsKept(t *testing.T) {
	t.Parallel()
	for name, start := range serversAndEmbedded {
		url := start(t)
		w := openWith(t, url, nil, redisstore.Options{Partitions: 4, Embedded: url == redisstore.Embedded})
		began := time.Now().Add(-time.Minute)
		whole := fsm.Change{
			By: "ops", From: "192.0.2.7", What: "subscription changed", Subscription: "s", About: "/a", Count: 3,
			Before: json.RawMessage(`{"rate":1}`), After: json.RawMessage(`{"rate":2}`),
		}
		if err := w.NoteChange(t.Context(), whole); err != nil {
			t.Fatal(err)
		}
		list := must[[]fsm.Change](t)(w.Changes(t.Context(), "", 10))
		if len(list) != 1 || !fsm.ValidLogID(list[0].ID) || list[0].At.Before(began) {
			t.Fatalf("%s: %+v", name, list)
		}
		got := list[0]
		if got.ID, got.At = "", (time.Time{}); !reflect.DeepEqual(got, whole) {
			t.Errorf("%s: kept is %+v, want %+v", name, got, whole)
		}
		for n := range 5 {
			if err := w.NoteChange(t.Context(), fsm.Change{What: fmt.Sprint(n)}); err != nil {
				t.Fatal(err)
			}
		}
		var all []string
		for before := ""; ; {
			page := must[[]fsm.Change](t)(w.Changes(t.Context(), before, 2))
			for _, c := range page {
				all, before = append(all, c.What), c.ID
			}
			if len(page) < 2 {
				break
			}
		}
		if want := []string{"4", "3", "2", "1", "0", whole.What}; !reflect.DeepEqual(all, want) {
			t.Errorf("%s: %q, want %q", name, all, want)
		}
	}
}

// TestTheAuditIsBounded holds how many changes are kept.
func TestTheAuditIsBounded(t *testing.T) {
	t.Parallel()
	harness.Long(t)
	w := openWith(t, redisstore.EmptyRedis(t).URL, nil, redisstore.Options{Partitions: 4})
	for range fsm.MaxChanges + 200 {
		if err := w.NoteChange(t.Context(), fsm.Change{What: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(must[[]fsm.Change](t)(w.Changes(t.Context(), "", 2*fsm.MaxChanges))); n < fsm.MaxChanges ||
		n > fsm.MaxChanges+100 {
		t.Errorf("%d are kept", n)
	}
}
