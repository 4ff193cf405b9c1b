package fsm

import (
	"errors"
	"fmt"
	"strings"
)

// Offset is a position in a stream as Reveille keeps it: the upstream's opaque offset and, where that does not sort
// byte by byte, a sort key in front of it, separated by one space. An upstream whose offsets sort by themselves (the
// protocol demands it) needs no key, and its Offset is the offset to the letter. A space sorts before every character
// that an offset or a key may hold, so two Offsets of one stream compare as plain strings.
//
// A stream may come to be numbered anew under the same name (a broker restarted), without its new offsets sorting
// after its old ones. An Offset then names the incarnation that it is of, in front of the key and followed by "/",
// which no offset holds. Offsets of two incarnations do not compare: only Restart leads from one to the other.
//
// The empty Offset is "not known yet": the tail of a stream that nobody has seen.
type Offset string

// Start is the offset before everything, "-1" (protocol, Offsets). It sorts before every other offset.
const Start Offset = "-1"

// MaxOffsetLen bounds an offset in bytes.
const MaxOffsetLen = 256

// ErrOffset is the cause of every error that ParseOffset returns.
var ErrOffset = errors.New("not an offset")

// ParseOffset checks that s is an offset of a standard server and can be stored as a position: printable ASCII
// without ",&=?/" and spaces, at most MaxOffsetLen bytes, and not "now", which names a place that moves.
func ParseOffset(s string) (Offset, error) {
	switch {
	case s == "":
		return "", fmt.Errorf("%w: it is empty", ErrOffset)
	case len(s) > MaxOffsetLen:
		return "", fmt.Errorf("%w: it is longer than %d bytes", ErrOffset, MaxOffsetLen)
	case s == "now":
		return "", fmt.Errorf("%w: \"now\" is not a position that can be recorded", ErrOffset)
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || strings.IndexByte(",&=?/", c) >= 0 {
			return "", fmt.Errorf("%w: byte %d (%q) is not allowed in an offset", ErrOffset, i, c)
		}
	}
	return Offset(s), nil
}

// KeyedOffset returns the Offset of an upstream whose offsets do not sort byte by byte: key sorts in their place.
func KeyedOffset(key, value string) Offset {
	if key == value {
		return Offset(value)
	}
	return Offset(key + " " + value)
}

// IncarnateOffset is KeyedOffset in an incarnation of the stream.
func IncarnateOffset(incarnation, key, value string) Offset {
	return Offset(incarnation + "/" + key + " " + value)
}

// Incarnation is that of the stream that o is of; empty where the offsets of a stream compare for ever.
func (o Offset) Incarnation() string {
	incarnation, _, ok := strings.Cut(string(o), "/")
	if !ok {
		return ""
	}
	return incarnation
}

// Other says whether o and p are of two incarnations of their stream.
func (o Offset) Other(p Offset) bool {
	a := o.Incarnation()
	if a == "" {
		return false
	}
	b := p.Incarnation()
	return b != "" && a != b
}

// Value returns the offset as the upstream knows it.
func (o Offset) Value() string {
	if _, v, ok := strings.Cut(string(o), " "); ok {
		return v
	}
	return string(o)
}

// After says whether o lies beyond p, byte by byte (webhook spec, Pending Work). An unknown offset lies beyond none,
// and so does one of another incarnation.
func (o Offset) After(p Offset) bool {
	switch {
	case o == "" || o == p || o == Start:
		return false
	case p == "" || p == Start:
		return true
	}
	return o > p && !o.Other(p)
}
