package upstream

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/anycable"
)

// TestABatchToAnEnd holds that nothing behind the end is read, and that an answer is kept just for what lies before it.
func TestABatchToAnEnd(t *testing.T) {
	for _, tc := range []struct {
		name, kind, data string
		from, end        int64
		most             int
		want             []string
		to               fsm.Offset
	}{
		{"messages", "application/json", "[1,2,3,4,5]", 1, 3, 10, []string{"2", "3"}, at(3)},
		{"some of them", "application/json", "[1,2,3,4,5]", 1, 3, 1, []string{"2"}, at(2)},
		{"the last ones", "application/json", "[1,2,3,4,5]", 1, 5, 10, []string{"2", "3", "4", "5"}, "9"},
		{"none", "application/json", "[1,2,3,4,5]", 3, 3, 10, nil, at(3)},
		{"bytes", "text/plain", "abcde", 1, 3, 1, []string{"bc"}, at(3)},
		{"the last bytes", "text/plain", "abcde", 1, 5, 1, []string{"bcde"}, "9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := testClient(t, shown(tc.kind, "9", tc.data), "", nil)
			b, err := c.ReadBatch(t.Context(), "r", "/a", at(tc.from), at(tc.end), tc.most, 0, nil)
			if err != nil || !slices.Equal(texts(b.Events), tc.want) || b.To != tc.to || b.From != at(tc.from) {
				t.Errorf("got %q from %q to %q, %v", texts(b.Events), b.From, b.To, err)
			}
			if n, more := len(c.readings.kept), at(tc.end).After(tc.to); more != (n > 0) {
				t.Errorf("%d answers are kept", n)
			}
		})
	}
}

// TestABatchToAnEndWhereEventsHaveNumbers holds it where the first events are let go of.
func TestABatchToAnEndWhereEventsHaveNumbers(t *testing.T) {
	s := anycable.New(anycable.Options{History: 8})
	c := to(t, s, nil)
	published := 0
	publish := func(n int) {
		for range n {
			published++
			s.Publish("a", strconv.Itoa(published))
		}
	}
	read := func(reader string, at, end fsm.Offset, most int, want ...string) fsm.Batch {
		t.Helper()
		b, err := c.ReadBatch(t.Context(), reader, "/a", at, end, most, 0, nil)
		if err != nil || !slices.Equal(texts(b.Events), want) {
			t.Fatalf("from %q to %q: got %q, %v; want %q", at, end, texts(b.Events), err, want)
		}
		return b
	}
	publish(5)
	first := read("r", fsm.Start, "", 2, "1", "2")
	failed := read("r", first.To, "", 2, "3", "4")
	for _, further := range []int{0, 1} {
		publish(further)
		again := read("aside", first.To, failed.Within, 10, "3", "4")
		if again.From != failed.From || again.Within != failed.Within {
			t.Errorf("the same events are %+v, and were %+v", again, failed)
		}
	}
	read("start", fsm.Start, first.Within, 10, "1", "2")
	publish(5) // those up to 3 are gone
	gap := read("aside", first.To, failed.Within, 10)
	if !gap.NotKept {
		t.Errorf("what is gone of it is %+v", gap)
	}
	if last := read("aside", gap.To, failed.Within, 10, "4"); last.Within != failed.Within {
		t.Errorf("what is kept ends at %q, want %q", last.Within, failed.Within)
	}
	publish(5) // all of them are gone
	past := read("aside", first.To, failed.Within, 10)
	if !past.NotKept || past.To != failed.Within || past.Within != failed.Within || past.From != failed.From {
		t.Errorf("what is gone is %+v, and was %+v", past, failed)
	}
}

// TestABatchToAnEndOfWhichNothingIsKept holds when it says so: once the server has shown that what lay before the end
// is gone for good. An answer that may be of a server that stops, or of a cache, shows nothing.
func TestABatchToAnEndOfWhichNothingIsKept(t *testing.T) {
	const atOnce = "true"
	standard := func(status int, upToDate, age, next, data string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(HeaderUpToDate, upToDate)
			w.Header().Set("Age", age)
			if status != http.StatusOK && r.Method == http.MethodGet {
				w.WriteHeader(status)
				return
			}
			shown("application/json", next, data)(w, r)
		}
	}
	broker := func(happens func(*anycable.Server)) http.HandlerFunc {
		s := anycable.New(anycable.Options{History: 2})
		s.Publish("a", "1", "2", "3", "4")
		happens(s)
		return s.ServeHTTP
	}
	expires := broker(func(s *anycable.Server) { s.Expire("a") })
	two, four := numberedAnyCableOffset("y001", 2), numberedAnyCableOffset("y001", 4)
	for _, tc := range []struct {
		name    string
		server  http.HandlerFunc
		at, end fsm.Offset
		notKept bool
		err     error
	}{
		{name: "the stream has expired", server: expires, at: two, end: four, notKept: true},
		{name: "and it is about the first events", server: expires, at: fsm.Start, end: two, notKept: true},
		{
			name: "the stream has expired, and has fewer events", at: two, end: four, notKept: true,
			server: broker(func(s *anycable.Server) { s.Expire("a"); s.Publish("a", "5") }),
		},
		{
			name: "the broker has another epoch", at: two, end: four, notKept: true,
			server: broker(func(s *anycable.Server) { s.Restart(); s.Publish("a", "5", "6", "7") }),
		},
		{
			name: "and it is about the first events of the one before", at: fsm.Start, end: two, notKept: true,
			server: broker(func(s *anycable.Server) { s.Restart(); s.Publish("a", "5", "6") }),
		},
		{
			name: "later events are kept, more than one answer shows", at: two, end: four, notKept: true,
			server: func() http.HandlerFunc {
				s := anycable.New(anycable.Options{History: 150})
				for i := range 200 {
					s.Publish("a", strconv.Itoa(i+1))
				}
				return s.ServeHTTP
			}(),
		},
		{
			name: "the broker stops", at: two, end: four, err: ErrNotKept,
			server: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(headerAnyCable, "1")
				w.WriteHeader(http.StatusGone)
			},
		},
		{
			name: "one that stops is followed by one that has it", at: two, end: four, err: ErrNotKept,
			server: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set(headerAnyCable, "1")
				w.Header().Set(HeaderUpToDate, atOnce)
				if r.URL.Query().Get("offset") != "-1" {
					w.WriteHeader(http.StatusGone)
					return
				}
				shown("application/json", "5::y001", "[1,2,3,4,5]")(w, r)
			},
		},
		{
			name: "nothing follows", server: standard(200, atOnce, "0", "1", "[]"), at: "1", end: at(2), notKept: true,
		},
		{name: "nothing follows yet", server: standard(200, "false", "0", "1", "[]"), at: "1", end: at(2)},
		{name: "nothing follows in a cache", server: standard(200, atOnce, "9", "1", "[]"), at: "1", end: at(2)},
		{
			name: "a 410 though the stream is there", server: standard(410, "", "", "1", ""), at: "1", end: at(2),
			notKept: true,
		},
		{name: "a 404", server: standard(404, "", "", "1", ""), at: "1", end: at(2), err: ErrGone},
		{
			name: "a 410 of a stream that is gone", at: "1", end: at(2), err: ErrGone,
			server: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := to(t, tc.server, nil)
			if strings.HasPrefix(string(tc.end), "y") {
				c.learn(&anyCable)
			}
			b, err := c.ReadBatch(t.Context(), "r", "/a", tc.at, tc.end, 1, 1, nil)
			if b.NotKept != tc.notKept || len(b.Events) > 0 || tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("got %+v, %v", b, err)
			}
			if tc.notKept && (b.To != tc.end || b.Within != tc.end) {
				t.Errorf("it leads to %q and %q", b.To, b.Within)
			}
			if b, err := c.ReadBatch(t.Context(), "o", "/a", tc.at, "", 1, 1, nil); b.NotKept {
				t.Errorf("without an end it is %+v, %v", b, err)
			}
		})
	}
}
