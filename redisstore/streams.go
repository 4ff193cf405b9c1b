package redisstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// Partitions implements fsm.StreamStore.
func (s *Store) Partitions() int { return s.keys.partitions }

// PartitionOf implements fsm.StreamStore.
func (s *Store) PartitionOf(path string) int { return s.keys.partitionOf(path) }

// Link implements fsm.StreamStore.
func (s *Store) Link(ctx context.Context, sub fsm.Subscription, path string, acked, tail fsm.Offset) (fsm.Outcome, error) {
	r, err := newReply(s.run(ctx, scriptLink, s.PartitionOf(path),
		sub.ID, sub.Generation, fsm.ConsumerID(sub.ID, path), path, string(acked), string(tail)))
	if err != nil {
		return fsm.Outcome{}, err
	}
	o := r.outcome()
	o.Linked = int(r.int())
	s.metrics.ended(scriptLink, o.Removed)
	return o, r.bad
}

// Observe implements fsm.StreamStore.
func (s *Store) Observe(ctx context.Context, partition int, path string, tail fsm.Offset) (fsm.Observation, error) {
	o := fsm.Observation{Busy: true}
	for cursor := "0"; ; {
		r, err := newReply(s.run(ctx, scriptObserve, partition, path, string(tail), cursor))
		if err != nil {
			return o, err
		}
		o.Watched = r.int() == 1
		o.Busy = r.int() == 1 && o.Busy
		o.Tail = fsm.Offset(r.text())
		cursor = r.text()
		o.Add(r.outcome())
		if r.bad != nil {
			return o, r.bad
		}
		if cursor == "0" {
			return o, nil
		}
	}
}

// Hide implements fsm.StreamStore.
func (s *Store) Hide(ctx context.Context, path string, a fsm.Absence) (found bool, err error) {
	for cursor := "0"; ; {
		r, err := newReply(s.run(ctx, scriptHide, s.PartitionOf(path), path, cursor, int(a)))
		if err != nil {
			return found, err
		}
		found = r.int() == 1 || found
		cursor = r.text()
		o := r.outcome()
		s.metrics.ended(scriptHide, o.Removed)
		s.noteEnded(o)
		if r.bad != nil {
			return found, r.bad
		}
		if cursor == "0" {
			return found, nil
		}
	}
}

// noteEnded tells of the wakes of an outcome that nobody else gets.
func (s *Store) noteEnded(o fsm.Outcome) {
	if s.opts.WakeEnded != nil && len(o.Ended) > 0 {
		s.opts.WakeEnded(o.Ended)
	}
}

// Restart implements fsm.StreamStore.
func (s *Store) Restart(ctx context.Context, partition int, path string, was, tail fsm.Offset) (fsm.Outcome, error) {
	return s.runOutcome(ctx, scriptRestart, partition, path, string(was), string(tail))
}

// Deleted implements fsm.StreamStore.
func (s *Store) Deleted(ctx context.Context, partition int, path string) (fsm.Outcome, error) {
	return s.runOutcome(ctx, scriptDeleted, partition, path)
}

// WatchedIn implements fsm.StreamStore.
func (s *Store) WatchedIn(ctx context.Context, path string) ([]int, error) {
	watched := make([]*redis.IntCmd, s.keys.partitions)
	pipe := s.rdb.Pipeline()
	for p := range watched {
		watched[p] = pipe.Exists(ctx, s.keys.partition(p)+"w:"+path)
	}
	if _, err := pipe.Exec(ctx); wrap(err) != nil {
		return nil, wrap(err)
	}
	var partitions []int
	for p, cmd := range watched {
		if cmd.Val() > 0 {
			partitions = append(partitions, p)
		}
	}
	return partitions, nil
}

// watchedBatch is how many watched streams are read at a time.
const watchedBatch = 1000

// WatchedSince implements fsm.StreamStore.
func (s *Store) WatchedSince(ctx context.Context, partition int, seq int64) ([]fsm.Watched, error) {
	found, err := s.rdb.ZRangeByScoreWithScores(ctx, s.keys.watched(partition), &redis.ZRangeBy{
		Min: "(" + strconv.FormatInt(seq, 10), Max: "+inf", Count: watchedBatch,
	}).Result()
	if err = wrap(err); err != nil || len(found) == 0 {
		return nil, err
	}
	watched := make([]fsm.Watched, len(found))
	tails := make([]*redis.StringCmd, len(found))
	pipe := s.rdb.Pipeline()
	for i, z := range found {
		path, _ := z.Member.(string)
		watched[i] = fsm.Watched{Path: path, Seq: int64(z.Score)}
		tails[i] = pipe.HGet(ctx, s.keys.partition(partition)+"s:"+path, "t")
	}
	if _, err := pipe.Exec(ctx); wrap(err) != nil {
		return nil, wrap(err)
	}
	for i, t := range tails {
		watched[i].Tail = fsm.Offset(t.Val())
	}
	return watched, nil
}

// NoteKnown implements fsm.StreamStore. The version is read after the stream was noted: a subscription that the version
// does not have yet is backfilled later, and will find the stream.
func (s *Store) NoteKnown(ctx context.Context, path string, awaited bool) (version int64, news bool, err error) {
	reply, err := s.run(ctx, scriptNoteKnown, s.PartitionOf(path), path, flag(awaited))
	if err != nil {
		return 0, false, err
	}
	version, err = s.version(ctx)
	return version, reply == int64(1), err
}

// Known implements fsm.StreamStore.
func (s *Store) Known(ctx context.Context, path string) (fsm.Known, bool, error) {
	v, err := s.rdb.HGet(ctx, s.keys.known(s.PartitionOf(path)), path).Result()
	if err = wrap(err); err != nil || v == "" {
		return fsm.Known{}, false, err
	}
	return decodeKnown(path, v), true, nil
}

// ForgetKnown implements fsm.StreamStore.
func (s *Store) ForgetKnown(ctx context.Context, path string, onlyAwaited bool) error {
	_, err := s.run(ctx, scriptForgetKnown, s.PartitionOf(path), path, flag(onlyAwaited))
	return err
}

// LostAgo implements fsm.StreamStore.
func (s *Store) LostAgo(ctx context.Context, path string) (ago time.Duration, lost bool, err error) {
	reply, err := s.run(ctx, scriptLostAgo, s.PartitionOf(path))
	millis, _ := reply.(int64)
	return time.Duration(max(0, millis)) * time.Millisecond, err == nil && millis >= 0, err
}

// scanBatch is about how many remembered streams are read at a time.
const scanBatch = 500

// ScanKnown implements fsm.StreamStore.
func (s *Store) ScanKnown(ctx context.Context, partition int, cursor string) ([]fsm.Known, string, error) {
	r, err := newReply(s.run(ctx, scriptScanKnown, partition, cursor, scanBatch))
	if err != nil {
		return nil, "", err
	}
	next := r.text()
	var known []fsm.Known
	r.within(func(l *reply) { known = append(known, decodeKnown(l.text(), l.text())) })
	return known, next, r.bad
}

func decodeKnown(path, v string) fsm.Known {
	text, awaited := strings.CutPrefix(v, "?")
	micros, _ := strconv.ParseInt(text, 10, 64) // only note_known.lua writes it
	return fsm.Known{Path: path, At: time.UnixMicro(micros), Awaited: awaited}
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// RegistryOffset implements fsm.StreamStore.
func (s *Store) RegistryOffset(ctx context.Context) (fsm.Offset, error) {
	v, err := s.rdb.Get(ctx, s.keys.registry()).Result()
	if err = wrap(err); err != nil {
		return "", err
	}
	if v == "" {
		return fsm.Start, nil
	}
	return fsm.Offset(v), nil
}

// MoveRegistryOffset implements fsm.StreamStore.
func (s *Store) MoveRegistryOffset(ctx context.Context, from, to fsm.Offset) (moved bool, err error) {
	n, err := s.call(ctx, scriptMoveRegistry, []string{s.keys.registry()}, string(from), string(to))
	return n == int64(1), err
}
