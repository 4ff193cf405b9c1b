package discovery

import (
	"time"

	"reveille/fsm"
)

// Evidence is what a source saw of a stream. The zero Evidence says that there is reason to look.
type Evidence struct {
	// Tail is where a write through the gateway ended that upstream has accepted; empty if its answer is lost. First is
	// that of the record before the write, and Seen is how the event became known.
	Tail  fsm.Offset
	First time.Time
	Seen  fsm.Sighting
	// Made says that a write has made the stream: what was on record before it is no more. Of is the First of that
	// record, zero if it is not known.
	Made bool
	Of   time.Time
	// Stray says that a write was announced to another record than First's: it may have landed before that record's
	// stream was first heard of.
	Stray bool
	// Await puts the stream on record for so long if upstream does not have it yet.
	Await time.Duration

	// deleted says that it was deleted: from this time on it is believed at once that upstream does not have it.
	deleted time.Time
	// confirm says that there is nothing to do if the stream is on record and linked, known that it was: that upstream
	// does not have it is not believed at once.
	confirm, known bool
	// urgent is true if a caller waits for it.
	urgent bool
}

// Merge returns the evidence with what another source saw. Seen keeps when the first of their events was seen.
func (e Evidence) Merge(o Evidence) Evidence {
	first := e.Seen.At
	if first.IsZero() || !o.Seen.At.IsZero() && o.Seen.At.Before(first) {
		first = o.Seen.At
	}
	// Of two records the later one counts; if either is not known, whatever is on record.
	if o.Made && (!e.Made || !e.Of.IsZero() && (o.Of.IsZero() || o.Of.After(e.Of))) {
		e.Made, e.Of = true, o.Of
	}
	e.Stray = e.Stray || o.Stray || !e.First.IsZero() && !o.First.IsZero() && !e.First.Equal(o.First)
	if e.Tail == "" && e.First.IsZero() {
		e.First = o.First
	}
	if o.Tail != "" && (e.Tail == "" || o.First.After(e.First) || o.First.Equal(e.First) && o.Tail.After(e.Tail)) {
		e.Tail, e.First, e.Seen = o.Tail, o.First, o.Seen
	}
	e.Seen.At = first
	if e.deleted.IsZero() || !o.deleted.IsZero() && o.deleted.Before(e.deleted) {
		e.deleted = o.deleted
	}
	e.confirm, e.known = e.confirm && o.confirm, e.known || o.known
	e.Await, e.urgent = max(e.Await, o.Await), e.urgent || o.urgent
	return e
}

// strays says whether a write was announced to another record than a stream has, and that record's consumers begin
// beyond where the write may have landed.
func (e Evidence) strays(s fsm.Stream) bool {
	other := e.Stray || !e.First.IsZero() && !e.First.Equal(s.First)
	return other && s.Found() && s.Begin != fsm.Start
}
