package upstream

import (
	"cmp"
	"fmt"
	"net/http"

	"reveille/fsm"
)

// The dialects that Config takes.
const (
	DialectAuto     = "auto"
	DialectStandard = "standard"
	DialectAnyCable = "anycable"
)

// dialect holds what differs between stream servers. The header names of the protocol are the same for all.
type dialect struct {
	name string
	// offset makes an Offset from what the server or a worker calls one. Start is an offset, and nowhere an error.
	offset func(text string) (fsm.Offset, error)
	// everyName is true if every name is a stream. Such a stream exists once it shows an event. Otherwise a missing
	// stream has one of the statuses in gone.
	everyName bool
	gone      []int
	// notKept are the statuses of a read from an offset that the server no longer keeps. They say nothing about the
	// stream.
	notKept []int
	// number is how many events a stream has had up to an offset. Its inverse, numbered, is the offset behind that many
	// events. Both are nil if offsets do not say. A server with numbers drops the first events of a stream.
	number   func(fsm.Offset) int64
	numbered func(incarnation string, n int64) fsm.Offset
	// writes is true if clients can write by this protocol.
	writes bool
	// cacheable is true if the server allows caches to answer reads in its place.
	cacheable bool
	// signed returns the query parameter that proves that a request for a stream is allowed; nil if there is none.
	signed func(key, path string) (parameter, value string)
}

var standard = dialect{
	name: DialectStandard, offset: fsm.ParseOffset, gone: []int{http.StatusNotFound, http.StatusGone}, writes: true,
}

var dialects = map[string]*dialect{DialectAuto: nil, DialectStandard: &standard, DialectAnyCable: &anyCable}

// between returns how many events, or bytes, lie between two positions. ok is false if they do not say, or without an
// end.
func (d *dialect) between(at, end fsm.Offset) (n int64, ok bool) {
	from, passed := at.Split()
	to, n := end.Split()
	switch {
	case end == "":
		return 0, false
	case from == to:
		return max(n-passed, 0), true
	case d.number != nil:
		return max(d.number(to)+n-d.number(from)-passed, 0), true
	}
	return 0, false
}

// next returns the next offset of an answer; empty if the answer names no position.
func (d *dialect) next(text string) (fsm.Offset, error) {
	if text == "" || text == "now" {
		return "", nil
	}
	o, err := d.offset(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", AnswerError{What: "its next offset"}, err)
	case o == fsm.Start && !d.everyName:
		return "", AnswerError{What: "its next offset is \"-1\", which is no tail"}
	}
	return o, nil
}

// learn notes the dialect that upstream has shown, unless the dialect is fixed.
func (c *Client) learn(d *dialect) {
	if !c.fixed {
		c.dialect.Store(d)
	}
}

// dialectOf returns the dialect of an answer, as far as is known. Without a setting, the answers of a server show it:
// by the version, and by the form of an offset.
func (c *Client) dialectOf(h http.Header) *dialect {
	switch offset := h.Get(HeaderNextOffset); {
	case h.Get(headerAnyCable) != "" || isAnyCableOffset(offset):
		c.learn(&anyCable)
	case offset != "" && !isAnyCableStart(offset): // a standard server may use these, too
		c.learn(&standard)
	}
	return c.known()
}

// known returns the dialect as far as it is known. Until upstream shows it, that is the standard one.
func (c *Client) known() *dialect {
	return cmp.Or(c.dialect.Load(), &standard)
}

// Dialect returns the name of the dialect that upstream speaks, as far as is known.
func (c *Client) Dialect() string { return c.known().name }

// TakesWrites says whether clients can write to streams by this protocol.
func (c *Client) TakesWrites() bool { return c.known().writes }

// ParseOffset makes an Offset from what a client or the server calls one. The error wraps fsm.ErrOffset.
func (c *Client) ParseOffset(s string) (fsm.Offset, error) {
	if c.dialect.Load() == nil && isAnyCableOffset(s) {
		return anyCable.offset(s)
	}
	return c.known().offset(s)
}

// NextOffset returns the tail that an answer to a write shows; empty if it shows none.
func (c *Client) NextOffset(h http.Header) fsm.Offset {
	o, _ := c.dialectOf(h).next(h.Get(HeaderNextOffset))
	return o
}

func isSuccess(status int) bool { return status >= 200 && status <= 299 }
