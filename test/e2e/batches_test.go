package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/tailer/upstream"
)

// TestBatchesOfTheReferenceServerHaveEachOfItsEvents holds that events which are read in batches, while others are
// appended, are those of the stream, whatever they hold.
func TestBatchesOfTheReferenceServerHaveEachOfItsEvents(t *testing.T) {
	t.Parallel()
	e := shared(t)
	root, err := url.Parse(e.ref.StreamRoot)
	if err != nil {
		t.Fatal(err)
	}
	reader := upstream.New(upstream.Config{URL: root, HeadTimeout: time.Second})
	t.Cleanup(reader.Close)
	// walk reads from a position to the tail, and returns the events and where they end.
	walk := func(path string, at fsm.Offset, most int) (events []string, to fsm.Offset) {
		for {
			b, err := reader.ReadBatch(t.Context(), "r", path, at, "", most, 0, nil)
			if err != nil {
				t.Fatalf("%s from %q: %v", path, at, err)
			}
			if len(b.Events) == 0 {
				if b.To != b.Tail || string(b.Tail) != e.streams.Tail(path) {
					t.Errorf("%s ends at %q, tail %q", path, b.To, b.Tail)
				}
				return events, at
			}
			if len(b.Events) > most || !b.To.After(at) {
				t.Fatalf("%s from %q: %d events to %q", path, at, len(b.Events), b.To)
			}
			for _, event := range b.Events {
				events = append(events, string(event))
			}
			at = b.To
		}
	}
	for _, most := range []int{1, 3, 100} {
		path := fmt.Sprintf("/%s/%d", name(t), most)
		e.streams.Create(path)
		if events, _ := walk(path, fsm.Start, most); len(events) > 0 {
			t.Errorf("an empty stream has %q", events)
		}
		want := []string{`{"n":1}`, `"],["`, `[1,[2]]`, `"\\\""`, "null", `{"é":"€"}`, "7"}
		e.streams.Append(path, "["+strings.Join(want[:5], " , ")+"]") // five messages by one append
		for _, message := range want[5:] {
			e.streams.Append(path, message)
		}
		// A reader that is in the middle when more is appended.
		first, err := reader.ReadBatch(t.Context(), "r", path, fsm.Start, "", 2, 0, nil)
		if err != nil || len(first.Events) != 2 {
			t.Fatalf("%d events, %v", len(first.Events), err)
		}
		want = append(want, `"later"`)
		e.streams.Append(path, `"later"`)
		events, to := walk(path, first.To, most)
		if !slices.Equal(events, want[2:]) {
			t.Errorf("%d at a time: behind the first two there are %q, want %q", most, events, want[2:])
		}
		if events, _ = walk(path, fsm.Start, most); !slices.Equal(events, want) {
			t.Errorf("%d at a time: there are %q, want %q", most, events, want)
		}
		e.streams.Append(path, `"last"`)
		if events, _ = walk(path, to, most); !slices.Equal(events, []string{`"last"`}) {
			t.Errorf("%d at a time: behind them there are %q", most, events)
		}
	}

	path := "/" + name(t) + "/text"
	if r := e.streams.Do(http.MethodPut, path, "some ", "Content-Type", "text/plain"); r.Status != http.StatusCreated {
		t.Fatalf("PUT: %d", r.Status)
	}
	if r := e.streams.Do(http.MethodPost, path, "text", "Content-Type", "text/plain"); r.Status/100 != 2 {
		t.Fatalf("POST: %d", r.Status)
	}
	b, err := reader.ReadBatch(t.Context(), "r", path, fsm.Start, "", 1, 0, nil)
	if err != nil || b.JSON || b.ContentType != "text/plain" || len(b.Events) != 1 ||
		string(b.Events[0]) != "some text" {
		t.Errorf("got %q of %s, %v", b.Events, b.ContentType, err)
	}
}
