package fsm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Offset is a position in a stream as Reveille keeps it. It is the upstream's opaque offset, unchanged, if offsets sort
// byte by byte, as the protocol demands.
//
// Other streams may be numbered anew under the same name, for example after a broker restart. Their offsets do not
// sort. An Offset of theirs is the incarnation of the stream, "/", a sort key, one space, and the upstream's offset. An
// upstream's offset contains neither "/" nor a space, and a space sorts before all characters of a key. So two Offsets
// of one incarnation compare as plain strings. Offsets of two incarnations do not compare: only Restart leads from one
// to the other.
//
// A position inside of what one read shows has no upstream offset. It is the Offset that the read is from, two spaces,
// and how much of the read lies before the position (At). So it sorts between that Offset and the next.
//
// The empty Offset means "not known yet": the tail of a stream whose tail no replica has seen.
type Offset string

// Start is the offset before everything, "-1" (protocol, Offsets). It sorts before every other offset.
const Start Offset = "-1"

// MaxOffsetLen bounds an offset in bytes.
const MaxOffsetLen = 256

// ErrOffset is the cause of every error that ParseOffset returns.
var ErrOffset = errors.New("not an offset")

// ParseOffset checks that s is an offset of a standard server and can be stored as a position. It must be printable
// ASCII without ",&=?/" and spaces, and at most MaxOffsetLen bytes long. It must not be "now", which names a place that
// moves.
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

// IncarnateOffset returns the Offset for an upstream's value in an incarnation of the stream. key sorts in place of
// value.
func IncarnateOffset(incarnation, key, value string) Offset {
	return Offset(incarnation + "/" + key + " " + value)
}

// Incarnation returns the incarnation of the stream that o belongs to. It is empty if the stream's offsets always
// compare.
func (o Offset) Incarnation() string {
	incarnation, _, ok := strings.Cut(string(o), "/")
	if !ok {
		return ""
	}
	return incarnation
}

// Other says whether o and p belong to two incarnations of their stream.
func (o Offset) Other(p Offset) bool {
	a := o.Incarnation()
	if a == "" {
		return false
	}
	b := p.Incarnation()
	return b != "" && a != b
}

// indexDigits is the number of digits of the index in a position that lies inside of what a read shows.
const indexDigits = 12

// At returns the position behind the first n messages of what a read from o shows; in a stream without messages, n
// counts bytes. The position must lie before next, the offset that the read leads to. The count n is less than 10^12,
// and o is not itself a position inside of a read.
func (o Offset) At(n int64, next Offset) Offset {
	switch incarnation := next.Incarnation(); {
	case n == 0:
		return o
	case o != Start:
	case incarnation == "":
		o = ""
	default:
		o = IncarnateOffset(incarnation, "", string(Start))
	}
	return Offset(fmt.Sprintf("%s  %0*d", o, indexDigits, n))
}

// Split returns the offset from which a read shows what follows a position. The count n is the number of messages
// (bytes) that this read shows before the position.
func (o Offset) Split() (from Offset, n int64) {
	at := strings.LastIndex(string(o), "  ")
	if at < 0 {
		return o, 0
	}
	n, _ = strconv.ParseInt(string(o[at+2:]), 10, 64) // At has written it
	if at == 0 {
		return Start, n
	}
	return o[:at], n
}

// Value returns the offset as the upstream knows it.
func (o Offset) Value() string {
	o, _ = o.Split()
	if _, v, ok := strings.Cut(string(o), " "); ok {
		return v
	}
	return string(o)
}

// After says whether o lies beyond p, byte by byte (webhook spec, Pending Work). An unknown offset lies beyond no
// other, and neither does an offset of another incarnation.
func (o Offset) After(p Offset) bool {
	switch {
	case o == "" || o == p || o == Start:
		return false
	case p == "" || p == Start:
		return true
	}
	return o > p && !o.Other(p)
}

// Ahead says whether p does not cover o: o lies beyond p, or is of another incarnation.
func (o Offset) Ahead(p Offset) bool { return o.After(p) || o.Other(p) }

// within says whether o is a position of the stream that has a tail, as far as offsets tell.
func (o Offset) within(tail Offset) bool {
	return o == Start || o.Incarnation() == tail.Incarnation() && !o.After(tail)
}
