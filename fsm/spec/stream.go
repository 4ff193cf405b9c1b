package spec

import (
	"time"

	"reveille/fsm"
)

// VersionsThrough returns the latest version that can belong to a time in milliseconds, whichever server's clock was
// used.
func VersionsThrough(millis int64) int64 {
	return (millis + fsm.MaxClockSkew.Milliseconds()) * fsm.VersionsPerMilli
}

// Beginning returns where a consumer begins that asks for o: there, but never beyond the end of a closed stream. If o
// belongs to another stream, all consumers will start over.
func Beginning(n fsm.Noted, o fsm.Offset) fsm.Offset {
	if n.EndsBefore(o) {
		return n.Tail
	}
	return o
}

// Raised returns the noted end after a caller has shown a tail, and whether the stream is closed there. The tail may be
// old news, or may belong to a later stream of the name.
func Raised(n fsm.Noted, tail fsm.Offset, closed bool) fsm.Noted {
	if tail.After(n.Tail) && !n.EndsBefore(tail) {
		n.Tail = tail
	}
	n.Closed = n.Closed || closed && tail == n.Tail && tail != ""
	return n
}

// LinkStream returns the record as it is after a Linking, at its new stamp.
func LinkStream(s fsm.Stream, l fsm.Linking, stamp int64, now time.Time) fsm.Stream {
	if s.Noted == 0 {
		s.Noted = l.Version
	}
	s.State, s.Linked, s.Tail, s.Stamp, s.Until = fsm.StreamPresent, l.Version, l.Tail, stamp, now.Add(l.Look)
	return s
}
