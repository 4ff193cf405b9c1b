package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// Partitions implements fsm.PartitionStore.
func (s *Store) Partitions() int { return s.db.opts.Partitions }

// PartitionOf implements fsm.PartitionStore.
func (s *Store) PartitionOf(path string) int { return s.db.partitionOf(path) }

func (db *DB) partitionOf(path string) int {
	return int(hash(path) % uint32(db.opts.Partitions))
}

// home returns the partition of a primary stream.
func (t *tx) home(path string) *partition { return t.partitions[t.db.partitionOf(path)] }

// Observe implements tailer.TailStore.
func (s *Store) Observe(
	ctx context.Context, partition int, path string, tail fsm.Offset, closed bool,
) (o fsm.Observation, err error) {
	o.Busy = true
	err = s.do(ctx, func(t *tx) {
		p := t.partitions[partition]
		if _, watched := p.streams[path]; !watched {
			return
		}
		p.raise(path, tail, closed)
		o.Watched, o.Noted = true, p.streams[path].noted
		for _, c := range p.of(path) {
			c, e := spec.Observe(c, t.env(p, c.ID), path, o.Noted.Tail)
			t.put(p, c, e, &o.Outcome)
			if _, linked := c.Links[path]; linked && spec.Wakeable(c) {
				o.Busy = false
			}
		}
	}, "Observe", partition, path, tail, closed)
	return o, err
}

// Hide implements tailer.TailStore.
func (s *Store) Hide(ctx context.Context, path string, a fsm.Absence) (o fsm.Outcome, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(path)
		for _, c := range p.of(path) {
			if c.Primary != path {
				continue
			}
			c, e := spec.Hide(c, t.env(p, c.ID), a)
			if t.put(p, c, e, &o); e.Removed {
				t.dropRecord(p, path) // should the stream come back, it is a new one
			}
		}
	}, "Hide", path, a)
	return o, err
}

// Restart implements tailer.TailStore.
func (s *Store) Restart(
	ctx context.Context, partition int, path string, was, tail fsm.Offset,
) (o fsm.Outcome, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.partitions[partition]
		concerned := p.of(path)
		if len(concerned) == 0 || p.streams[path].noted.Tail != was {
			return
		}
		if record, found := p.records[path]; found {
			record.Stamp = t.nextStamp()
			record.First, record.Begin, record.Tail = time.UnixMicro(record.Stamp), fsm.Start, ""
			p.records[path] = record
		}
		for _, c := range concerned {
			if c.Primary != path {
				c, e := spec.Restart(c, t.env(p, c.ID), path, tail)
				t.put(p, c, e, &o)
				continue
			}
			t.put(p, c, spec.Remove(c, fsm.RemovedStreamRecreated), &o)
			p.store(spec.Anew(c))
			fresh, e := spec.Observe(p.consumers[c.ID], t.env(p, c.ID), path, tail)
			t.put(p, fresh, e, &o)
		}
		p.note(path, fsm.Noted{Tail: tail})
	}, "Restart", partition, path, was, tail)
	return o, err
}

// Deleted implements discovery.RecordStore.
func (s *Store) Deleted(
	ctx context.Context, partition int, path string, d fsm.Deletion,
) (o fsm.Outcome, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.partitions[partition]
		if !d.Of.IsZero() && !p.records[path].First.Equal(d.Of) {
			return
		}
		if t.dropRecord(p, path); d.Expect {
			p.expect(path, 1)
		}
		if d.Anew {
			n := fsm.NewStream(path, "")
			n.Lost, n.Stamp = t.streamAt(path).Lost, t.nextStamp()
			// First is the Stamp, which no earlier record had.
			n.First, n.Until = time.UnixMicro(n.Stamp), time.UnixMicro(t.micros())
			if d.Doubt {
				n.Until = n.Until.Add(t.db.opts.Timing.GoneGrace)
			}
			p.records[path] = n
		}
		for _, c := range p.of(path) {
			if c.Primary == path {
				t.put(p, c, spec.Remove(c, fsm.RemovedStreamDeleted), &o)
				continue
			}
			c, e := spec.Restart(c, t.env(p, c.ID), path, "")
			t.put(p, c, e, &o)
		}
		p.note(path, fsm.Noted{})
	}, "Deleted", partition, path, d)
	return o, err
}

// WatchedIn implements discovery.RecordStore.
func (s *Store) WatchedIn(ctx context.Context, path string) (partitions []int, err error) {
	err = s.do(ctx, func(t *tx) {
		for n, p := range t.partitions {
			if _, watched := p.streams[path]; watched {
				partitions = append(partitions, n)
			}
		}
	}, "WatchedIn", path)
	return partitions, err
}

// watchedBatch is how many watched streams are read at a time.
const watchedBatch = 1000

// WatchedSince implements tailer.TailStore.
func (s *Store) WatchedSince(ctx context.Context, partition int, seq int64) (list []fsm.Watched, err error) {
	err = s.do(ctx, func(t *tx) {
		for path, st := range t.partitions[partition].streams {
			if st.seq > seq {
				list = append(list, fsm.Watched{Path: path, Tail: st.noted.Tail, Seq: st.seq})
			}
		}
		slices.SortFunc(list, func(a, b fsm.Watched) int { return cmp.Compare(a.Seq, b.Seq) })
		list = list[:min(len(list), watchedBatch, t.db.opts.Batch)]
	}, "WatchedSince", partition, seq)
	return list, err
}

// RegistryPlace implements discovery.RegistryStore.
func (s *Store) RegistryPlace(ctx context.Context) (at fsm.RegistryPlace, err error) {
	err = s.do(ctx, func(t *tx) {
		at = t.registry
	}, "RegistryPlace")
	return at, err
}

// RegistryRead implements discovery.RegistryStore.
func (s *Store) RegistryRead(ctx context.Context) (read bool, err error) {
	err = s.do(ctx, func(t *tx) {
		read = t.registryRead
	}, "RegistryRead")
	return read, err
}

// SetRegistryRead implements discovery.RegistryStore.
func (s *Store) SetRegistryRead(ctx context.Context) error {
	return s.do(ctx, func(t *tx) {
		t.registryRead = true
	}, "SetRegistryRead")
}

// MoveRegistry implements discovery.RegistryStore.
func (s *Store) MoveRegistry(ctx context.Context, from, to fsm.RegistryPlace, anew bool) (moved bool, err error) {
	err = s.do(ctx, func(t *tx) {
		if moved = t.registry.Offset == from.Offset && t.registry.Mark == from.Mark; moved {
			t.registry.Offset, t.registry.Mark = to.Offset, to.Mark
			if anew {
				t.registry.Since = t.now()
			}
		}
	}, "MoveRegistry", from, to, anew)
	return moved, err
}
