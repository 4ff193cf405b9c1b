package upstream

import (
	"slices"
	"strconv"
	"testing"

	"reveille/fsm"
	"reveille/test/anycable"
)

// TestABatchToAnEnd holds that nothing behind the end is read, and that no answer is kept for what follows it.
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
			b, err := c.ReadBatch(t.Context(), "r", "/a", at(tc.from), at(tc.end), tc.most, false)
			if err != nil || !slices.Equal(texts(b.Events), tc.want) || b.To != tc.to || b.From != at(tc.from) {
				t.Errorf("got %q from %q to %q, %v", texts(b.Events), b.From, b.To, err)
			}
			if n := len(c.readings.kept); n != 0 {
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
		b, err := c.ReadBatch(t.Context(), reader, "/a", at, end, most, false)
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
	if last := read("aside", gap.To, failed.Within, 10, "4"); last.Within != failed.Within {
		t.Errorf("what is kept ends at %q, want %q", last.Within, failed.Within)
	}
	publish(5) // all of them are gone
	if gap = read("aside", first.To, failed.Within, 10); !gap.Within.After(failed.Within) {
		t.Errorf("it goes on at %q", gap.Within)
	}
}
