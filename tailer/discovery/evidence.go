package discovery

import (
	"time"

	"reveille/fsm"
)

// Evidence is what a source saw of a stream. The zero Evidence says that there is reason to look.
type Evidence struct {
	// Tail is the tail after a write through the gateway that upstream accepted; empty if its answer is lost. First is
	// the First of the record before the write. Seen is how the event became known.
	Tail  fsm.Offset
	First time.Time
	Seen  fsm.Sighting
	// Made says that a write made the stream. The record from before it is void. Of is the First of that record; zero
	// if it is not known.
	Made bool
	Of   time.Time
	// Stray says that a write was announced to another record than First's. It may have landed before the stream of
	// First's record was first heard of.
	Stray bool
	// Await puts the stream on record for this long if upstream does not have it yet.
	Await time.Duration

	// deleted says that the stream was deleted. From this time on, a 404 is believed at once.
	deleted time.Time
	// onlyWrites says that nothing but writes was seen. If the stream is linked, it is enough to tell the store the
	// tail.
	onlyWrites bool
	// confirm says that there is nothing to do if the stream is on record and linked. The flag known says that it was,
	// so that a 404 is not believed at once.
	confirm, known bool
	// urgent is true if a caller waits, and for a write.
	urgent bool
}

// Merge returns the evidence with what another source saw. Seen keeps the time of the earliest event.
func (e Evidence) Merge(o Evidence) Evidence {
	first := e.Seen.At
	if first.IsZero() || !o.Seen.At.IsZero() && o.Seen.At.Before(first) {
		first = o.Seen.At
	}
	// Of the two records, the later one counts. If either is unknown, whatever is on record counts.
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
	e.onlyWrites, e.confirm, e.known = e.onlyWrites && o.onlyWrites, e.confirm && o.confirm, e.known || o.known
	e.Await, e.urgent = max(e.Await, o.Await), e.urgent || o.urgent
	return e
}

// strays says whether a write was announced to another record than the present one. It is false if the consumers of the
// present record begin at the start, where they miss nothing.
func (e Evidence) strays(s fsm.Stream) bool {
	other := e.Stray || !e.First.IsZero() && !e.First.Equal(s.First)
	return other && s.Found() && s.Begin != fsm.Start
}
