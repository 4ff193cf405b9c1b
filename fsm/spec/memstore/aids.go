package memstore

import (
	"context"
	"maps"
	"time"

	"reveille/fsm"
)

// PutSubscription puts a subscription on the list as it is, as if its backfill were over.
func (db *DB) PutSubscription(sub fsm.Subscription) {
	db.edit(func(t *tx) {
		if t.relist(); sub.Version == 0 {
			sub.Version = t.version
		}
		t.subs[sub.ID] = sub
	})
}

// SetBackfill sets how far the backfill of a subscription has come; nil ends it.
func (db *DB) SetBackfill(sub fsm.Subscription, b *fsm.Backfill) {
	db.edit(func(t *tx) {
		delete(t.backfills, sub.ID)
		if b != nil {
			t.backfills[sub.ID] = backfill{sub.Generation, *b}
		}
	})
}

// PutConsumer stores a consumer as it is; the tails of its links are noted.
func (db *DB) PutConsumer(c fsm.Consumer) {
	db.edit(func(t *tx) {
		p := t.home(c.Primary)
		p.store(c)
		for path, l := range c.Links {
			p.raise(path, l.Tail, false)
		}
	})
}

// ChangeConsumer changes a consumer that is there; its links may be changed in place.
func (db *DB) ChangeConsumer(id string, f func(*fsm.Consumer)) {
	db.edit(func(t *tx) {
		if p, c, there := t.find(id); there {
			c.Links = maps.Clone(c.Links)
			f(&c)
			p.store(c)
		}
	})
}

// LoseConsumer removes a consumer without a trace.
func (db *DB) LoseConsumer(id string) {
	db.edit(func(t *tx) {
		if p, c, there := t.find(id); there {
			p.take(c)
		}
	})
}

// SetTail sets the noted tail of a watched stream in the partition of a primary stream.
func (db *DB) SetTail(primary, path string, tail fsm.Offset) {
	db.edit(func(t *tx) { t.home(primary).note(path, fsm.Noted{Tail: tail}) })
}

// LoseStream removes all that is kept of a stream and its consumers, without a trace.
func (db *DB) LoseStream(path string) {
	db.edit(func(t *tx) {
		p := t.home(path)
		for _, c := range p.of(path) {
			if c.Primary == path {
				p.take(c)
			}
		}
		t.dropRecord(p, path)
	})
}

// PutLetter keeps a dead letter in the partition of its consumer.
func (db *DB) PutLetter(l fsm.DeadLetter) {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := db.begin()
	home := l.Stream
	if _, path, ok := fsm.ParseConsumerID(l.Consumer); ok {
		home = path
	}
	t.keep(t.home(home), l)
}

// PutRecord stores a stream's record as it is.
func (db *DB) PutRecord(s fsm.Stream) {
	db.edit(func(t *tx) { t.home(s.Path).records[s.Path] = s })
}

// edit changes the state without a call of a replica; the catalogs of replicas that are not stale follow.
func (db *DB) edit(f func(*tx)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := db.begin()
	f(t)
	if t.refresh {
		for _, r := range db.replicas {
			if !r.stale {
				r.readSubscriptions()
				r.readEndpoints(t.now())
			}
		}
	}
}

func (t *tx) find(id string) (p *partition, c fsm.Consumer, there bool) {
	for _, p := range t.partitions {
		if c, there := p.consumers[id]; there {
			return p, c, true
		}
	}
	return nil, c, false
}

// Consumer returns a consumer that is there, whether or not its subscription was deleted.
func (db *DB) Consumer(id string) (c fsm.Consumer, there bool) {
	db.edit(func(t *tx) { _, c, there = t.find(id) })
	return c, there
}

// SeenClosed says whether a stream is watched, and was seen closed wherever it is.
func (db *DB) SeenClosed(path string) (closed bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, p := range db.state.partitions {
		if s, watched := p.streams[path]; watched {
			if !s.noted.Closed {
				return false
			}
			closed = true
		}
	}
	return closed
}

// Consumers returns all that are there, by partition and ID.
func (db *DB) Consumers() (list []fsm.Consumer) {
	db.edit(func(t *tx) {
		for _, p := range t.partitions {
			list = append(list, p.all()...)
		}
	})
	return list
}

// Subscriptions returns the list of subscriptions.
func (db *DB) Subscriptions() (subs map[string]fsm.Subscription) {
	db.edit(func(t *tx) { subs = maps.Clone(t.subs) })
	return subs
}

// Endpoints returns the endpoints in trouble, by the generation of their subscription.
func (db *DB) Endpoints() (endpoints map[string]fsm.EndpointState) {
	db.edit(func(t *tx) { endpoints = maps.Clone(t.endpoints) })
	return endpoints
}

// Pauses returns until when origins are left alone.
func (db *DB) Pauses() (pauses map[string]time.Time) {
	db.edit(func(t *tx) { pauses = maps.Clone(t.pauses) })
	return pauses
}

// Backfills returns the backfills under way, by the generation of their subscription.
func (db *DB) Backfills() map[string]fsm.Backfill {
	under := map[string]fsm.Backfill{}
	db.edit(func(t *tx) {
		for _, b := range t.backfills {
			under[b.generation] = b.progress
		}
	})
	return under
}

// Records returns the records of streams, by path.
func (db *DB) Records() map[string]fsm.Stream {
	records := map[string]fsm.Stream{}
	db.edit(func(t *tx) {
		for _, p := range t.partitions {
			maps.Copy(records, p.records)
		}
	})
	return records
}

// RegistryOffset returns how far the registry stream was read.
func (db *DB) RegistryOffset() (at fsm.Offset) {
	db.edit(func(t *tx) { at = t.registry.Offset })
	return at
}

// RegistrySince returns since when another registry stream is read; zero for the first one.
func (db *DB) RegistrySince() (at time.Time) {
	db.edit(func(t *tx) { at = t.registry.Since })
	return at
}

// RegistryWasRead says whether the registry stream was ever read to its end.
func (db *DB) RegistryWasRead() (read bool) {
	db.edit(func(t *tx) { read = t.registryRead })
	return read
}

// Expected returns how many deletions of a stream were dealt with that the registry stream will still report.
func (db *DB) Expected(path string) (n int) {
	db.edit(func(t *tx) { n = t.home(path).expected[path] })
	return n
}

// Tail returns the noted tail of a stream in the partition of a primary stream.
func (db *DB) Tail(primary, path string) (tail fsm.Offset) {
	db.edit(func(t *tx) { tail = t.home(primary).streams[path].noted.Tail })
	return tail
}

// Records is what Link needs of a store.
type Records interface {
	Stream(ctx context.Context, path string) (fsm.Stream, error)
	NoteStream(ctx context.Context, s fsm.Stream, look time.Duration) (fsm.Stream, bool, error)
	LinkStream(ctx context.Context, path string, l fsm.Linking) (fsm.LinkReply, error)
}

// Link links a stream to one subscription in any store, as discovery does: it is put on record, then linked.
func Link(
	ctx context.Context, s Records, sub fsm.Subscription, path string, acked, tail fsm.Offset,
) (fsm.Outcome, error) {
	stream, err := s.Stream(ctx, path)
	if err == nil && !stream.Found() {
		stream, _, err = s.NoteStream(ctx, fsm.NewStream(path, ""), time.Minute)
	}
	if err != nil {
		return fsm.Outcome{}, err
	}
	reply, err := s.LinkStream(ctx, path, fsm.Linking{
		Stamp: stream.Stamp, Tail: tail, Version: stream.Linked + 1, Look: time.Hour,
		Links: []fsm.NewLink{{Subscription: sub, Acked: acked}},
	})
	return reply.Outcome, err
}
