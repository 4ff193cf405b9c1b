package fsm

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestOnlyAnIDOfALogEntryIsOne(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"1764167412345-0": true, "1764167412345-12": true, "": false, "-": false, "+": false, "1764167412345": false,
		"1764167412345-": false, "-0": false, "(1-0": false, "1-0 ": false, "1-0\n": false,
		"1-9999999999999999999": false, "0-0": false,
	} {
		if got := ValidLogID(id); got != want {
			t.Errorf("%q: %t", id, got)
		}
	}
}

// TestALogGivesBackWhereTheEventsOfARequestAre holds that the text of an Extent says all of it, and that a text of
// another version says nothing, which is no error.
func TestALogGivesBackWhereTheEventsOfARequestAre(t *testing.T) {
	t.Parallel()
	const primary = "/a/17"
	from := Start.At(3, "0009")
	wake := Delivery{Primary: primary, Streams: []StreamTail{
		{Path: primary, Acked: "0005", Tail: "0007"},
		{Path: "/b", Acked: Start, Tail: Start},
		{Path: "/c", Acked: Start.At(2, "0009"), Tail: "0009"},
		{Path: "/d", Acked: IncarnateOffset("i", "k", "v+1"), Tail: IncarnateOffset("i", "l", "w")},
	}}
	for text, e := range map[string]Extent{
		"0123abcdn1":          {Shape: "0123abcd", At: from, Span: 1},
		"0123abcd-89abcdefn1": {Shape: "0123abcd", Sum: "89abcdef", At: from, Span: 1},
		"0123abcdn12 0005":    {Shape: "0123abcd", At: "0005", Span: 12},
		"0123abcdn1r1w1790000000123 i/ -1": {
			Shape: "0123abcd", At: "i/ -1", Span: 1, Replay: true,
			WokeAt: time.UnixMilli(1790000000123),
		},
		"0123abcdn1 i/k v  000000000002": {
			Shape: "0123abcd", At: IncarnateOffset("i", "k", "v").At(2, "i/l w"), Span: 1,
		},
		"0123abcd": {Shape: "0123abcd"},
		"0123abcd\n +0005\n/b -1\n/c +-1\n/d +v+1": {Shape: "0123abcd", Streams: StreamsOf(wake)},
		"": {},
	} {
		if got := e.Text(from, primary); got != text {
			t.Errorf("%+v is kept as %q, want %q", e, got, text)
		}
		if got := ReadExtent(text, from, primary); !reflect.DeepEqual(got, e) {
			t.Errorf("%q is read as %+v, want %+v", text, got, e)
		}
	}
	for _, text := range []string{"x", "0123abc", "0123abcdq1", "v2 0123abcdn1", "\n"} {
		if got := ReadExtent(text, from, primary); got.Shape != "" {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
	again := Delivery{Streams: Extent{Streams: StreamsOf(wake)}.Tails()}
	if got, want := again.Triggered(), wake.Triggered(); !slices.Equal(got, want) || len(want) != 3 {
		t.Errorf("pending are %q, and were %q", got, want)
	}
	for i, s := range again.Streams {
		if s.Path != wake.Streams[i].Path || s.Acked.Value() != wake.Streams[i].Acked.Value() {
			t.Errorf("a stream is %+v, and was %+v", s, wake.Streams[i])
		}
	}
	for range 100 {
		wake.Streams = append(wake.Streams, StreamTail{Path: "/another", Acked: "0001", Tail: "0002"})
	}
	if StreamsOf(wake) != nil {
		t.Error("many streams are kept")
	}
}

// TestEntriesOfSeveralLogsAreInOneOrder holds that it goes by the numbers in their IDs.
func TestEntriesOfSeveralLogsAreInOneOrder(t *testing.T) {
	t.Parallel()
	want := []string{"9-10", "10-9", "10-10", "11-0", "1764167412345-0"}
	got := slices.Clone(want)
	slices.Sort(got)
	if slices.SortFunc(got, CompareLogIDs); !slices.Equal(got, want) || CompareLogIDs("10-9", "10-9") != 0 {
		t.Errorf("got %q, want %q", got, want)
	}
}
