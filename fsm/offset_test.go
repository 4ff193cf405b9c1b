package fsm

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestAPositionInsideOfAReadLiesBetweenItsOffsetAndTheNext holds where positions sort and what the upstream is asked
// for.
func TestAPositionInsideOfAReadLiesBetweenItsOffsetAndTheNext(t *testing.T) {
	incarnate := func(n int) Offset { return IncarnateOffset("x", fmt.Sprintf("%04d", n), fmt.Sprintf("%d::x", n)) }
	for _, tc := range []struct {
		name       string
		from, next Offset
		n          int64
		want       Offset
		split      Offset
		value      string
	}{
		{"an offset", "1002", "1005", 3, "1002  000000000003", "1002", "1002"},
		{"an offset that begins the next", "10", "101", 3, "10  000000000003", "10", "10"},
		{"an offset before one that begins with the lowest sign", "10", "10!", 3, "10  000000000003", "10", "10"},
		{"the most messages", "1", "2", 999_999_999_999, "1  999999999999", "1", "1"},
		{"nothing of an offset", "1002", "1005", 0, "1002", "1002", "1002"},
		{"nothing of the start", Start, "1005", 0, Start, Start, "-1"},
		{"the start", Start, "1005", 3, "  000000000003", Start, "-1"},
		{"the start before the lowest offset", Start, "!", 3, "  000000000003", Start, "-1"},
		{"an incarnation", incarnate(9), incarnate(10), 3, "x/0009 9::x  000000000003", incarnate(9), "9::x"},
		{"the start of an incarnation", Start, incarnate(1), 3, "x/ -1  000000000003", "x/ -1", "-1"},
		{"the start of an incarnation, split before", "x/ -1", incarnate(1), 4, "x/ -1  000000000004", "x/ -1", "-1"},
		{"a start without a next offset", Start, "", 3, "  000000000003", Start, "-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.from.At(tc.n, tc.next)
			if got != tc.want || got.Value() != tc.value {
				t.Errorf("it is %q, %q to the upstream, want %q and %q", got, got.Value(), tc.want, tc.value)
			}
			if from, n := got.Split(); from != tc.split || n != tc.n || from.At(n, tc.next) != got {
				t.Errorf("it splits into %q and %d, want %q and %d", from, n, tc.split, tc.n)
			}
			if tc.n > 0 && (!got.After(tc.from) || tc.from.After(got)) {
				t.Errorf("%q does not lie beyond %q", got, tc.from)
			}
			if tc.next != "" && (!tc.next.After(got) || got.After(tc.next) || tc.next.Other(got)) {
				t.Errorf("%q does not lie beyond %q", tc.next, got)
			}
		})
	}
}

func TestPositionsAfterTheStartsOfTwoIncarnationsDoNotCompare(t *testing.T) {
	x, y := IncarnateOffset("x", "0001", "1::x"), IncarnateOffset("y", "0001", "1::y")
	inX, inY := Start.At(5, x), Start.At(7, y)
	if !inX.Other(inY) || !inX.Other(y) || !y.Other(inX) || inX.Other(x) || inX.Other(Start) {
		t.Errorf("%q and %q do not tell their incarnations", inX, inY)
	}
	if inX.After(inY) || inY.After(inX) || y.After(inX) || inX.After(y) {
		t.Errorf("%q and %q compare", inX, inY)
	}
}

// TestPositionsSortAsTheirMessagesDo holds it for any two reads in a row, of any kind of offset.
func TestPositionsSortAsTheirMessagesDo(t *testing.T) {
	text := rapid.StringMatching(`[!-~]{1,12}`).Filter(func(s string) bool {
		_, err := ParseOffset(s)
		return err == nil && s != string(Start)
	})
	count := rapid.Int64Range(1, 999_999_999_999)
	rapid.Check(t, func(t *rapid.T) {
		offset := func(s string) Offset { return Offset(s) }
		if rapid.Bool().Draw(t, "incarnate") {
			offset = func(s string) Offset { return IncarnateOffset("x", s, s+"::x") }
		}
		two := rapid.SliceOfNDistinct(text, 2, 2, rapid.ID[string]).Draw(t, "offsets")
		from, next := offset(two[0]), offset(two[1])
		if from > next {
			from, next = next, from
		}
		if rapid.Bool().Draw(t, "from the start") {
			from = Start
		}
		m, n := count.Draw(t, "m"), count.Draw(t, "n")
		atM, atN := from.At(m, next), from.At(n, next)
		if atM.After(atN) != (m > n) || atN.After(atM) != (n > m) {
			t.Fatalf("%d and %d messages are at %q and %q", m, n, atM, atN)
		}
		for _, at := range []Offset{atM, atN} {
			if !at.After(from) || from.After(at) || !next.After(at) || at.After(next) {
				t.Fatalf("%q does not lie between %q and %q", at, from, next)
			}
			if at.Value() != from.Value() {
				t.Fatalf("the upstream is asked for %q, not for %q", at.Value(), from.Value())
			}
		}
		if base, k := atN.Split(); k != n || base.At(k, next) != atN || from != Start && base != from {
			t.Fatalf("%q splits into %q and %d", atN, base, k)
		}
	})
}

// TestAnEventHasOneIDWhereverItsBatchBegins holds that the ID of an event is the same in a batch that begins with it
// and in one that begins at the start, and that no other event has it.
func TestAnEventHasOneIDWhereverItsBatchBegins(t *testing.T) {
	wake, next := Delivery{Generation: "g", Primary: "/a", Born: 1}, IncarnateOffset("x", "0009", "9::x")
	first, later := EventID(wake, Start), EventID(wake, Start.At(3, next))
	anew, elsewhere, other := wake, wake, wake
	anew.Born, elsewhere.Primary, other.Generation = 2, "/b", "h"
	if hash, ok := strings.CutSuffix(first, "_0"); !ok || later != hash+"_3" {
		t.Errorf("in one read the IDs are %s and %s", first, later)
	}
	seen := map[string]bool{first: true, later: true}
	for _, id := range []string{
		EventID(wake, next), EventID(wake, next.At(3, next)), EventID(anew, Start), EventID(elsewhere, Start),
		EventID(other, Start),
	} {
		if seen[id] {
			t.Errorf("two events have the ID %s", id)
		}
		seen[id] = true
	}
}
