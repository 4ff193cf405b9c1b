package memstore

import (
	"maps"
	"slices"
	"strings"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// generation names a subscription, and tells it from an earlier one of the same ID.
type generation struct{ id, generation string }

// partition is what a partition holds. A consumer in it is never changed in place, nor are its links.
type partition struct {
	consumers map[string]fsm.Consumer
	// order is the order in which the consumers of each subscription are listed; nil after one came or went.
	order map[generation][]string
	// streams are the streams that concern a consumer: linked to it, or its primary.
	streams map[string]stream
	seq     int64
	// floor is the highest epoch of any consumer that was removed.
	floor int64
	// deleted are the generations of deleted subscriptions: they get no consumers any more.
	deleted map[string]struct{}
	fence   spec.Fence
	// records are the records of streams, and removed is the stamp of the latest removal of a record.
	records map[string]fsm.Stream
	removed int64
	// expected counts the deletions that the registry stream will report, minus the deletions that it has reported
	// first.
	expected map[string]int
	// letters are in the order in which they came.
	letters []fsm.DeadLetter
	// events are those that were handed over, by ID.
	events map[string]fsm.OutboxRecord
	// eventStreams are the streams of these events, and since when each is being removed; zero unless it is.
	eventStreams map[string]time.Time
	// hours counts what became of them.
	hours map[fsm.OutboxHour]fsm.OutboxTally
	// replays are the replay queues that are not empty, by consumer, each in the order of its numbers.
	replays map[string][]queued
}

type stream struct {
	noted     fsm.Noted
	seq       int64
	consumers map[string]struct{}
}

func newPartition() *partition {
	return &partition{
		consumers: map[string]fsm.Consumer{}, streams: map[string]stream{}, deleted: map[string]struct{}{},
		records: map[string]fsm.Stream{}, expected: map[string]int{}, replays: map[string][]queued{},
		events: map[string]fsm.OutboxRecord{}, hours: map[fsm.OutboxHour]fsm.OutboxTally{},
		eventStreams: map[string]time.Time{},
	}
}

func (p *partition) clone() *partition {
	c := *p
	c.consumers, c.deleted = maps.Clone(p.consumers), maps.Clone(p.deleted)
	c.records, c.expected = maps.Clone(p.records), maps.Clone(p.expected)
	c.letters, c.replays = slices.Clone(p.letters), maps.Clone(p.replays)
	c.events, c.hours = maps.Clone(p.events), maps.Clone(p.hours)
	c.eventStreams = maps.Clone(p.eventStreams)
	c.streams = make(map[string]stream, len(p.streams))
	for path, s := range p.streams {
		s.consumers = maps.Clone(s.consumers)
		c.streams[path] = s
	}
	return &c
}

// of returns the consumers that a stream concerns, by ID.
func (p *partition) of(path string) []fsm.Consumer {
	var list []fsm.Consumer
	for _, id := range slices.Sorted(maps.Keys(p.streams[path].consumers)) {
		list = append(list, p.consumers[id])
	}
	return list
}

// all returns the consumers, by ID.
func (p *partition) all() []fsm.Consumer {
	return slices.SortedFunc(maps.Values(p.consumers),
		func(a, b fsm.Consumer) int { return strings.Compare(a.ID, b.ID) })
}

// store stores a consumer and watches just the streams that concern it.
func (p *partition) store(c fsm.Consumer) {
	was, there := p.consumers[c.ID]
	if !there {
		p.order = nil
	}
	p.consumers[c.ID] = c
	if c.IsAside() { // its consumer watches the streams
		return
	}
	p.watch(c.Primary, c.ID)
	for path := range c.Links {
		p.watch(path, c.ID)
	}
	for path := range was.Links {
		if _, linked := c.Links[path]; !linked && path != c.Primary {
			p.unwatch(path, c.ID)
		}
	}
}

func (p *partition) watch(path, id string) {
	s, watched := p.streams[path]
	if !watched {
		p.seq++
		s = stream{seq: p.seq, consumers: map[string]struct{}{}}
	}
	s.consumers[id] = struct{}{}
	p.streams[path] = s
}

func (p *partition) unwatch(path, id string) {
	delete(p.streams[path].consumers, id)
	if len(p.streams[path].consumers) == 0 {
		delete(p.streams, path)
	}
}

// take takes a consumer out. A later consumer with the same ID has higher epochs.
func (p *partition) take(c fsm.Consumer) {
	was := p.consumers[c.ID]
	delete(p.consumers, c.ID)
	p.order = nil
	p.floor = max(p.floor, was.Epoch)
	if c.IsAside() {
		if owner, there := p.consumers[c.Owner]; there {
			owner.Asides--
			p.consumers[c.Owner] = owner
		}
		return
	}
	delete(p.replays, c.ID)
	p.unwatch(was.Primary, c.ID)
	for path := range was.Links {
		p.unwatch(path, c.ID)
	}
}

// asidesOf returns the asides of a consumer, in the order of the numbers in their IDs.
func (p *partition) asidesOf(c fsm.Consumer) (list []fsm.Consumer) {
	if c.Asides == 0 {
		return nil
	}
	for _, a := range p.all() {
		if a.Owner == c.ID {
			list = append(list, a)
		}
	}
	slices.SortStableFunc(list, func(a, b fsm.Consumer) int { return len(a.ID) - len(b.ID) })
	return list
}

// asides counts the asides of a subscription, without the asides that replay something.
func (p *partition) asides(generation string) (n int) {
	for _, c := range p.consumers {
		if c.Generation == generation && c.IsAside() && c.Replay == 0 {
			n++
		}
	}
	return n
}

// raisedBy returns what is noted of a stream after a consumer has read up to a tail. An aside shows nothing of the
// stream, nor does a consumer that is not linked to it.
func (p *partition) raisedBy(c fsm.Consumer, path string, tail fsm.Offset) fsm.Noted {
	noted := p.streams[path].noted
	if _, linked := c.Links[path]; linked && !c.IsAside() {
		noted = spec.Raised(noted, tail, false)
	}
	return noted
}

// note notes the end of a watched stream, for every consumer that is linked to it, and wakes none of them.
func (p *partition) note(path string, noted fsm.Noted) {
	s, watched := p.streams[path]
	if !watched {
		return
	}
	s.noted = noted
	p.streams[path] = s
	for id := range s.consumers {
		c := p.consumers[id]
		if l, linked := c.Links[path]; linked && l.Tail != noted.Tail {
			c.Links = maps.Clone(c.Links)
			l.Tail = noted.Tail
			c.Links[path] = l
			p.consumers[id] = c
		}
	}
}

// raise notes a tail that was shown, and whether the stream is closed there. It wakes no consumer.
func (p *partition) raise(path string, tail fsm.Offset, closed bool) {
	p.note(path, spec.Raised(p.streams[path].noted, tail, closed))
}

// put stores what a transition returned and adds its effects to an outcome.
func (t *tx) put(p *partition, c fsm.Consumer, e spec.Effects, o *fsm.Outcome) {
	if e.Delivery != nil {
		w := *e.Delivery
		w.Asked = t.asked
		o.Deliveries = append(o.Deliveries, w)
	}
	if e.Idled {
		o.Idle = append(o.Idle, slices.Sorted(maps.Keys(c.Links))...)
	}
	if e.Hidden {
		o.Hidden = append(o.Hidden, c.Primary)
	}
	if e.Ended != nil {
		o.Ended = append(o.Ended, *e.Ended)
	}
	if e.Removal != nil {
		o.Removed = append(o.Removed, *e.Removal)
	}
	if e.Revived != 0 {
		t.dropNumbered(p, e.Revived, o)
	}
	if e.Removed {
		for _, a := range p.asidesOf(c) {
			t.put(p, a, spec.Remove(a, e.Cause), o)
		}
		p.take(c)
	}
	if e.Dead != nil {
		c.Letter = t.leave(p, c, e, o)
	}
	if e.Removed {
		return
	}
	if e.Aside != nil {
		t.fence(p)
		p.store(*e.Aside)
	}
	if c.Epoch > p.consumers[c.ID].Epoch {
		t.fence(p)
	}
	p.store(c)
}

// expect changes how many deletions of a stream the registry stream will report.
func (p *partition) expect(path string, n int) {
	if p.expected[path] += n; p.expected[path] == 0 {
		delete(p.expected, path)
	}
}
