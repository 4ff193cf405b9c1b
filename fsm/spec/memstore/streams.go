package memstore

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
)

func (t *tx) micros() int64 { return t.draw.Now.UnixMicro() }

// nextStamp moves the stamp. Restore does not take it back.
func (t *tx) nextStamp() int64 {
	t.db.stamp = max(t.micros(), t.db.stamp+1)
	return t.db.stamp
}

// streamAt returns a stream's record, or a substitute if there is none.
func (t *tx) streamAt(path string) fsm.Stream {
	p := t.home(path)
	t.fence(p)
	if s, there := p.records[path]; there {
		return s
	}
	s := fsm.Stream{Path: path, Stamp: p.removed}
	if p.fence.Base > 0 {
		s.Lost = spec.VersionsThrough(p.fence.Base / 1024)
	}
	return s
}

// dropRecord takes a stream off the record, if it is on it. If upstream was asked before, its answer does not count any
// more.
func (t *tx) dropRecord(p *partition, path string) {
	delete(p.records, path)
	p.removed = t.nextStamp()
}

// Stream implements discovery.RecordStore.
func (s *Store) Stream(ctx context.Context, path string) (stream fsm.Stream, err error) {
	err = s.do(ctx, func(t *tx) {
		stream = t.streamAt(path)
	}, "Stream", path)
	return stream, err
}

// NoteStream implements discovery.RecordStore.
func (s *Store) NoteStream(
	ctx context.Context, n fsm.Stream, look time.Duration,
) (stream fsm.Stream, done bool, err error) {
	err = s.do(ctx, func(t *tx) {
		there, till := t.streamAt(n.Path), time.UnixMicro(t.micros()).Add(look)
		switch {
		case !there.Found() && n.Present() && n.Stamp != there.Stamp:
		case !there.Found():
			n.First, n.Until, n.Stamp = time.UnixMicro(t.micros()), till, t.nextStamp()
			n.Lost = max(n.Lost, there.Lost)
			there, done = n, true
		case n.Present():
		case there.Present():
			done = true
		default:
			done = true
			if till.After(there.Until) {
				there.Until = till
			}
		}
		if done {
			t.home(n.Path).records[n.Path] = there
		}
		stream = there
	}, "NoteStream", n, look)
	return stream, done, err
}

// LinkStream implements discovery.RecordStore.
func (s *Store) LinkStream(ctx context.Context, path string, l fsm.Linking) (reply fsm.LinkReply, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(path)
		there := t.streamAt(path)
		if reply.Done = there.Found() && there.Stamp == l.Stamp; !reply.Done {
			reply.Stream = there
			return
		}
		for _, n := range l.Links {
			t.link(p, n, path, l.Tail, &reply.Outcome)
		}
		reply.Stream = spec.LinkStream(there, l, t.nextStamp(), time.UnixMicro(t.micros()))
		p.records[path] = reply.Stream
	}, "LinkStream", path, l)
	return reply, err
}

// link makes the consumer that a subscription has for a stream, unless it is there, and notes the tail.
func (t *tx) link(p *partition, n fsm.NewLink, path string, tail fsm.Offset, o *fsm.Outcome) {
	sub, id := n.Subscription, fsm.ConsumerID(n.Subscription.ID, path)
	if _, deleted := p.deleted[sub.Generation]; deleted {
		return
	}
	c, there := p.consumers[id]
	if there && c.Generation != sub.Generation {
		// left over from an earlier subscription of the same ID
		t.put(p, c, spec.Remove(c, fsm.RemovedSubscriptionDeleted), o)
		there = false
	}
	if !there {
		noted := p.streams[path].noted
		p.store(spec.NewConsumer(sub, path, spec.Beginning(noted, n.Acked), p.floor))
		p.note(path, noted)
		o.Linked++
	}
	p.raise(path, tail, false)
	c, e := spec.Observe(p.consumers[id], t.env(p, id), path, p.streams[path].noted.Tail)
	t.put(p, c, e, o)
}

// ForgetStream implements discovery.RecordStore.
func (s *Store) ForgetStream(
	ctx context.Context, path string, stamp int64, readByOthers bool,
) (forgotten bool, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(path)
		there, found := p.records[path]
		_, watched := p.streams[path]
		if !found || there.Stamp != stamp || watched && !readByOthers ||
			!there.Present() && time.UnixMicro(t.micros()).Before(there.Until) {
			return
		}
		t.dropRecord(p, path)
		forgotten = true
	}, "ForgetStream", path, stamp, readByOthers)
	return forgotten, err
}

// ScanStreams implements discovery.RecordStore.
func (s *Store) ScanStreams(
	ctx context.Context, partition int, cursor string,
) (list []fsm.Stream, next string, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.partitions[partition]
		paths, following := some(disorder(p.records), cursor, t.db.opts.Batch)
		for _, path := range paths {
			record := p.records[path]
			record.NotedTail = p.streams[path].noted.Tail
			list = append(list, record)
		}
		next = following
	}, "ScanStreams", partition, cursor)
	return list, next, err
}

// TakeDeletion implements discovery.RegistryStore.
func (s *Store) TakeDeletion(ctx context.Context, path string) (taken bool, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(path)
		taken = p.expected[path] > 0
		p.expect(path, -1)
	}, "TakeDeletion", path)
	return taken, err
}

// Version implements discovery.Store.
func (s *Store) Version(ctx context.Context) (version int64, err error) {
	err = s.do(ctx, func(t *tx) {
		version = t.version
	}, "Version")
	return version, err
}
