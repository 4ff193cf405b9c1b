package upstream

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAnOverlapIsTheOnlyPlaceThatFits holds that one read is laid over another where it is of the same events, and
// nowhere if it fits in several places.
func TestAnOverlapIsTheOnlyPlaceThatFits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		data := rapid.SliceOfN(rapid.Uint64Range(1, 3), 2, 12).Draw(rt, "events")
		shown := data[:rapid.IntRange(1, len(data)-1).Draw(rt, "shown")]
		from := rapid.IntRange(0, len(shown)-1).Draw(rt, "from")
		other := data[from:rapid.IntRange(from+1, len(data)).Draw(rt, "to")]
		places := 0
		for at := range shown {
			n := min(len(shown)-at, len(other))
			if slices.Equal(shown[at:at+n], other[:n]) {
				places++
			}
		}
		n, ok := stretch{n: int64(len(shown)), sums: shown}.overlap(stretch{n: int64(len(other)), sums: other})
		if ok != (places == 1) || ok && n != int64(from) {
			rt.Errorf("it is at %d, %v, of %d places", n, ok, places)
		}
	})
	for name, s := range map[string]stretch{"nothing": {}, "too much": {n: 3, sums: []uint64{1, 2}}} {
		if n, ok := s.overlap(stretch{n: 1, sums: []uint64{2}}); ok {
			t.Errorf("of %s it is at %d", name, n)
		}
	}
}
