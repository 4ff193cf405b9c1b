package fsm

import (
	"slices"
	"strings"
)

// Triggered returns the paths of a wake's streams that have pending events (webhook spec, triggered_by).
func (w Wake) Triggered() []string {
	paths := []string{}
	for _, s := range w.Streams {
		if (Link{Acked: s.Acked, Tail: s.Tail}).Pending() {
			paths = append(paths, s.Path)
		}
	}
	return paths
}

// SortStreams orders the streams of a consumer: the primary first, then the others by path.
func SortStreams(primary string, streams []StreamTail) {
	slices.SortFunc(streams, func(a, b StreamTail) int {
		switch {
		case a.Path == primary:
			return -1
		case b.Path == primary:
			return 1
		}
		return strings.Compare(a.Path, b.Path)
	})
}
