package upstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
	"reveille/test/anycable"
)

// among makes a filter that takes these events.
func among(taken ...string) func([]byte) bool {
	return func(event []byte) bool { return slices.Contains(taken, string(event)) }
}

// TestABatchOfWhatMatches holds what a batch has of a JSON stream, read from offset 1, which leads to offset 9.
func TestABatchOfWhatMatches(t *testing.T) {
	large := `"` + strings.Repeat("x", fsm.MaxDeliveryBytes) + `"`
	half := `"` + strings.Repeat("x", fsm.MaxDeliveryBytes/2) + `"`
	for _, tc := range []struct {
		name     string
		data     string
		from     int64
		end      fsm.Offset
		most     int
		taken    []string
		want     []string
		places   []int64
		passed   int64
		to       fsm.Offset
		tooLarge bool
	}{
		{
			name: "all", data: `[1,2]`, most: 5, taken: []string{"1", "2"}, want: []string{"1", "2"},
			places: []int64{0, 1}, to: "9",
		},
		{name: "none", data: `[1,2,3]`, most: 1, passed: 3, to: "9"},
		{name: "none of nothing", data: `[]`, most: 1, to: "9"},
		{
			name: "the first that matches", data: `[1,2,3,4]`, most: 1, taken: []string{"3", "4"}, want: []string{"3"},
			places: []int64{2}, passed: 2, to: at(3),
		},
		{
			name: "as many as a batch may have", data: `[1,2,3,4,5]`, most: 2, taken: []string{"2", "4", "5"},
			want: []string{"2", "4"}, places: []int64{1, 3}, passed: 2, to: at(4),
		},
		{
			name: "to the end of what is shown", data: `[1,2,3,4,5]`, most: 3, taken: []string{"2", "4"},
			want: []string{"2", "4"}, places: []int64{1, 3}, passed: 3, to: "9",
		},
		{
			name: "from a position on", data: `[1,2,3,4,5]`, from: 2, most: 1, taken: []string{"1", "4"},
			want: []string{"4"}, places: []int64{1}, passed: 1, to: at(4),
		},
		{
			name: "up to an end", data: `[1,2,3,4,5]`, from: 1, end: at(3), most: 9, taken: []string{"3", "4"},
			want: []string{"3"}, places: []int64{1}, passed: 1, to: at(3),
		},
		{
			name: "nothing up to an end", data: `[1,2,3,4,5]`, from: 1, end: at(3), most: 9, taken: []string{"5"},
			passed: 2, to: at(3),
		},
		{name: "nothing up to the end of the answer", data: `[1,2,3]`, end: "9", most: 9, passed: 3, to: "9"},
		{
			name: "nothing before one that is too large", data: `[1,` + large + `,3]`, most: 9, taken: []string{"3"},
			passed: 1, to: at(1),
		},
		{
			name: "one that is too large by itself", data: `[1,` + large + `,3]`, from: 1, most: 9,
			taken: []string{"3"},
			to:    at(2), tooLarge: true,
		},
		{
			name: "without room for what is passed over", data: `[` + half + `,` + half + `,` + half + `,4]`, most: 9,
			taken: []string{"4"}, want: []string{"4"}, places: []int64{3}, passed: 3, to: "9",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := testClient(t, shown("application/json", "9", tc.data), "", nil)
			c.passTime = time.Minute // however slow the machine is
			b, err := c.ReadBatch(t.Context(), "r", "/a", at(tc.from), tc.end, tc.most, 0, among(tc.taken...))
			if err != nil || !slices.Equal(texts(b.Events), tc.want) || !slices.Equal(b.Places, tc.places) ||
				b.Passed != tc.passed || b.To != tc.to || b.TooLarge != tc.tooLarge || b.NotKept {
				t.Errorf("got %.50q at %v, %d passed over, up to %q, too large %t, %v",
					texts(b.Events), b.Places, b.Passed, b.To, b.TooLarge, err)
			}
		})
	}
	c := testClient(t, shown("text/plain", "9", "bytes"), "", nil)
	b, err := c.ReadBatch(t.Context(), "r", "/a", "1", "", 1, 0, among())
	if err != nil || b.JSON || !slices.Equal(texts(b.Events), []string{"bytes"}) {
		t.Errorf("of bytes came %+v, %v", b, err)
	}
}

// TestAFilterPassesOverMuchInFewBatches holds that each goes on in the answer where the one before has ended, and that
// none passes over more than it may.
func TestAFilterPassesOverMuchInFewBatches(t *testing.T) {
	const size, n = 10 << 10, 2500
	event := `"` + strings.Repeat("x", size-2) + `"`
	s := &backlog{contentType: "application/json", data: "[" + strings.Repeat(event+",", n) + "1]"}
	c := testClient(t, s.ServeHTTP, "", nil)
	batches := 0
	for at := fsm.Offset("1"); at != "9"; batches++ {
		b, err := c.ReadBatch(t.Context(), "r", "/a", at, "", 1, 0, among("1"))
		if err != nil || !b.To.After(at) || b.Passed*size > passBytes+size {
			t.Fatalf("from %q: %d are passed over, to %q, %v", at, b.Passed, b.To, err)
		}
		if b.To == "9" != slices.Equal(texts(b.Events), []string{"1"}) {
			t.Fatalf("up to %q came %d events", b.To, len(b.Events))
		}
		at = b.To
	}
	// A slow machine may take more batches, for the time that each has. It needs an answer each only if it is stopped
	// for longer than one is kept.
	if least := n * size / passBytes; batches < least {
		t.Errorf("%d batches, want at least %d", batches, least)
	}
	if asked := int(s.asked.Load()); asked > 1 && asked >= batches {
		t.Errorf("the server was asked %d times for %d batches", asked, batches)
	}
}

// TestAFilteredWalkHasWhatMatches holds that what matches comes once, in order, and under the IDs that it has without a
// filter, however the reader goes and whatever is aside.
func TestAFilteredWalkHasWhatMatches(t *testing.T) {
	const n = 30
	wake := fsm.Delivery{Generation: "g", Primary: "/a"}
	for _, kept := range []bool{true, false} {
		c := testClient(t, messages(n).ServeHTTP, "", nil)
		rapid.Check(t, func(t *rapid.T) {
			var want, got []string
			taken := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, n, rapid.ID[int]).Draw(t, "taken")
			slices.Sort(taken)
			var names []string
			for _, i := range taken {
				names = append(names, strconv.Itoa(i))
				want = append(want, fmt.Sprint(i, " ", fsm.EventID(wake, at(int64(i)))))
			}
			for at, reads := fsm.Offset("1"), 0; at != "9"; reads++ {
				reader := "r"
				if !kept {
					reader = strconv.Itoa(reads)
				}
				most := rapid.IntRange(1, 5).Draw(t, "most")
				b, err := c.ReadBatch(context.Background(), reader, "/a", at, "", most, 0, among(names...))
				if err != nil || len(b.Events) > most || !b.To.After(at) {
					t.Fatalf("from %q: %+v, %v", at, b, err)
				}
				for i, e := range b.Events {
					got = append(got, fmt.Sprint(string(e), " ", b.EventID(wake, i)))
				}
				// What has failed is read again from the same position, as far, and is aside from then on.
				for _, end := range []fsm.Offset{"", b.Within} {
					n := max(len(b.Events), 1)
					again, err := c.ReadBatch(
						context.Background(), "again", "/a", at, end, n, b.Span(), among(names...),
					)
					if err != nil || !slices.EqualFunc(again.Events, b.Events, bytes.Equal) && len(b.Events) > 0 ||
						len(b.Events) > 0 && again.DeliveryID(wake) != b.DeliveryID(wake) || again.NotKept {
						t.Fatalf("again from %q to %q: %+v, %v; want %+v", at, end, again, err, b)
					}
				}
				at = b.To
			}
			if !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
		})
	}
}

// TestAFilterWhereEventsHaveNumbers holds that events keep their numbers, and that a gap is not taken for what is
// passed over.
func TestAFilterWhereEventsHaveNumbers(t *testing.T) {
	s := anycable.New(anycable.Options{History: 8})
	c := to(t, s, nil)
	publish := func(from, n int) {
		for i := range n {
			s.Publish("a", strconv.Itoa(from+i))
		}
	}
	wake := fsm.Delivery{Generation: "g", Primary: "/a"}
	read := func(at fsm.Offset, matches func([]byte) bool, most int) fsm.Batch {
		t.Helper()
		b, err := c.ReadBatch(t.Context(), "r", "/a", at, "", most, 0, matches)
		if err != nil {
			t.Fatalf("from %q: %v", at, err)
		}
		return b
	}
	ids := func(b fsm.Batch) (list []string) {
		for i, e := range b.Events {
			list = append(list, string(e)+" "+b.EventID(wake, i))
		}
		return list
	}
	publish(1, 5)
	all := ids(read(fsm.Start, nil, 9))
	for _, from := range []fsm.Offset{fsm.Start, read(fsm.Start, nil, 1).To} {
		b := read(from, among("2", "4"), 9)
		if want := []string{all[1], all[3]}; !slices.Equal(ids(b), want) {
			t.Errorf("from %q: got %q, want %q", from, ids(b), want)
		}
	}
	first := read(fsm.Start, among("2"), 1)
	if none := read(first.To, among(), 9); none.Passed != 3 || len(none.Events) > 0 || !none.To.After(first.To) {
		t.Errorf("where none matches came %+v", none)
	}
	publish(6, 10) // 8 to 15 are kept
	gap := read(first.To, among("9"), 9)
	if gap.Passed != 0 || len(gap.Events) > 0 || !gap.To.After(first.To) {
		t.Fatalf("over the gap came %+v", gap)
	}
	if b := read(gap.To, among("9"), 9); !slices.Equal(texts(b.Events), []string{"9"}) || b.Passed != 7 {
		t.Errorf("behind the gap came %+v", b)
	}
}

// TestWhatIsReadAgainIsAsMuch holds that a retry has the events of the first attempt, and so their ID: however slow the
// server is, and whatever the filter takes by then.
func TestWhatIsReadAgainIsAsMuch(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	c := testClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(HeaderNextOffset, "9")
		w.WriteHeader(http.StatusOK)
		slow := requests.Add(1) == 2
		for i, part := range []string{"[1", ",2", ",3", ",4]"} {
			if slow && i > 0 {
				w.(http.Flusher).Flush()
				time.Sleep(passTime * 2 / 3)
			}
			_, _ = io.WriteString(w, part)
		}
	}, "", nil)
	wake := fsm.Delivery{Generation: "g", Primary: "/a"}
	read := func(reader string, span int64, matches func([]byte) bool) fsm.Batch {
		t.Helper()
		b, err := c.ReadBatch(t.Context(), reader, "/a", "1", "", 2, span, matches)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := read("first", 0, among("1", "3"))
	if first.Span() != 3 {
		t.Errorf("it is of a span of %d", first.Span())
	}
	again := read("again", first.Span(), among("1", "3"))
	if a, b := first.DeliveryID(wake), again.DeliveryID(wake); a != b {
		t.Errorf("the first attempt is %s, the second %s", a, b)
	}
	if other := read("other", first.Span(), among("4")); len(other.Events) > 0 || other.Within != first.Within {
		t.Errorf("by another filter it is %+v", other)
	}
}
