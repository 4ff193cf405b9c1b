package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/test/anycable"
)

// TestABatchBehindEventsThatAreNotKept reads on where the server has dropped what follows the position.
func TestABatchBehindEventsThatAreNotKept(t *testing.T) {
	for _, tc := range []struct {
		name string
		// before events are published, of which the reader has had some, then what happens, and after further ones.
		before, had  int
		happens      func(s *anycable.Server)
		after        int
		want         []string
		lost         int64
		notKept, all bool
	}{
		{name: "some are dropped", before: 5, had: 2, after: 10, want: []string{"8", "9", "10"}, lost: 5},
		{name: "up to the last", before: 5, had: 2, after: 7, want: []string{"5", "6", "7"}, lost: 2},
		{name: "only those that it has had", before: 5, had: 4, after: 5, want: []string{"5", "6", "7"}},
		{name: "only those that are kept are there", before: 5, had: 2, after: 3, want: []string{"3", "4", "5"}},
		{name: "all of one batch", before: 5, had: 2, after: 10, all: true, lost: 5, want: []string{
			"8", "9", "10", "11", "12", "13", "14", "15",
		}},
		{
			name: "the stream has expired", before: 5, had: 2, notKept: true,
			happens: func(s *anycable.Server) { s.Expire("a") },
		},
		{
			name: "the server has another epoch", before: 5, had: 2, after: 10, notKept: true,
			happens: func(s *anycable.Server) { s.Restart() },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := anycable.New(anycable.Options{History: 8})
			c := to(t, s, nil)
			publish := func(from, n int) {
				for i := range n {
					s.Publish("a", strconv.Itoa(from+i+1))
				}
			}
			publish(0, tc.before)
			first, err := c.ReadBatch(t.Context(), "r", "/a", fsm.Start, "", tc.had, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tc.happens != nil {
				tc.happens(s)
			}
			publish(tc.before, tc.after)
			most := 3
			if tc.all {
				most = 100
			}
			b, err := c.ReadBatch(t.Context(), "r", "/a", first.To, "", most, 0, nil)
			if err == nil && tc.lost > 0 { // the gap is told by itself
				if len(b.Events) > 0 || !b.To.After(first.To) || b.Within != b.To || b.Lost != tc.lost {
					t.Fatalf("over the gap of %d came %q, up to %q", b.Lost, texts(b.Events), b.To)
				}
				b, err = c.ReadBatch(t.Context(), "r", "/a", b.To, "", most, 0, nil)
			}
			if tc.notKept {
				if !errors.Is(err, ErrNotKept) {
					t.Errorf("got %+v, %v", b, err)
				}
				return
			}
			if err != nil || !slices.Equal(texts(b.Events), tc.want) || b.Lost > 0 {
				t.Fatalf("got %q, %d lost, %v", texts(b.Events), b.Lost, err)
			}
		})
	}
}

// TestAWalkThroughAStreamThatIsTrimmed holds that a reader gets no event twice, each under the same name whenever it
// gets it, and all that were kept when it came.
func TestAWalkThroughAStreamThatIsTrimmed(t *testing.T) {
	var server atomic.Pointer[anycable.Server]
	c := to(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { server.Load().ServeHTTP(w, r) }), nil)
	runs, readers := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		history := rapid.IntRange(1, 12).Draw(t, "events that are kept")
		s := anycable.New(anycable.Options{History: history})
		server.Store(s)
		name := fmt.Sprintf("walk%d", runs)
		published, had := 0, 0
		at, ids := fsm.Start, map[string]string{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			for range rapid.IntRange(0, 10).Draw(t, "further events") {
				published++
				s.Publish(name, strconv.Itoa(published))
			}
			if published == had {
				continue // no delivery is due
			}
			goesOn := rapid.Bool().Draw(t, "the reader is the one of before")
			if !goesOn {
				readers++
			}
			most := rapid.IntRange(1, 12).Draw(t, "events of a batch")
			b, err := c.ReadBatch(t.Context(), fmt.Sprint(readers), "/"+name, at, "", most, 0, nil)
			if err != nil {
				t.Fatalf("from %q: %v", at, err)
			}
			want := max(had, published-history) + 1
			if goesOn && len(b.Events) > 0 && texts(b.Events)[0] == strconv.Itoa(had+1) {
				want = had + 1 // an answer that is open shows what was dropped since
			}
			_, n := b.From.Split()
			for i, event := range texts(b.Events) {
				if event != strconv.Itoa(want+i) {
					t.Fatalf("from %q: got %q, want %d on", at, texts(b.Events), want)
				}
				base, _ := b.From.Split()
				id := fmt.Sprint(base.Value(), n+int64(i))
				if was := ids[id]; was != "" && was != event {
					t.Fatalf("%s and %s have the id %s", was, event, id)
				}
				ids[id] = event
				if n+int64(i)+1 != int64(want+i) {
					t.Fatalf("%s is number %d", event, n+int64(i))
				}
			}
			if len(b.Events) == 0 && want > had+1 && b.To.After(at) { // a gap comes by itself
				at, had = b.To, want-1
				continue
			}
			if len(b.Events) == 0 || want > had+1 || !b.To.After(at) || b.To.After(b.Tail) {
				t.Fatalf("from %q: %d events to %q, tail %q", at, len(b.Events), b.To, b.Tail)
			}
			if rapid.Bool().Draw(t, "it is taken") {
				at, had = b.To, want-1+len(b.Events)
			}
		}
	})
}
