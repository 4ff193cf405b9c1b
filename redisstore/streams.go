package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// Partitions implements fsm.PartitionStore.
func (s *Store) Partitions() int { return s.keys.partitions }

// PartitionOf implements fsm.PartitionStore.
func (s *Store) PartitionOf(path string) int { return s.keys.partitionOf(path) }

// Observe implements tailer.TailStore.
func (s *Store) Observe(
	ctx context.Context, partition int, path string, tail fsm.Offset, closed bool,
) (fsm.Observation, error) {
	o := fsm.Observation{Busy: true}
	for cursor := "0"; ; {
		r := s.run(ctx, scriptObserve, partition, path, string(tail), flag(closed), cursor)
		o.Watched = r.yes()
		o.Busy = r.yes() && o.Busy
		o.Noted.Tail = fsm.Offset(r.text())
		o.Noted.Closed = r.yes()
		cursor = r.text()
		o.Add(r.outcome())
		if r.bad != nil || cursor == "0" {
			return o, r.bad
		}
	}
}

// Hide implements tailer.TailStore.
func (s *Store) Hide(ctx context.Context, path string, a fsm.Absence) (fsm.Outcome, error) {
	return s.batches(ctx, scriptHide, s.PartitionOf(path), path, int(a))
}

// Restart implements tailer.TailStore.
func (s *Store) Restart(ctx context.Context, partition int, path string, was, tail fsm.Offset) (fsm.Outcome, error) {
	return s.batches(ctx, scriptRestart, partition, path, string(was), string(tail))
}

// Deleted implements discovery.RecordStore.
func (s *Store) Deleted(ctx context.Context, partition int, path string, d fsm.Deletion) (fsm.Outcome, error) {
	of := ""
	if !d.Of.IsZero() {
		of = strconv.FormatInt(d.Of.UnixMicro(), 10)
	}
	return s.batches(ctx, scriptDeleted, partition, path, of, flag(d.Anew), flag(d.Expect), flag(d.Doubt))
}

// batches calls a script that replies the next cursor until that is "0". After an error, it returns the outcome of the
// earlier calls.
func (s *Store) batches(ctx context.Context, sc *script, partition int, args ...any) (o fsm.Outcome, err error) {
	err = s.eachBatch(ctx, sc, partition, func(l *reply) { o.Add(l.outcome()) }, args...)
	return o, err
}

// eachBatch calls a script until its cursor is "0". The script takes the cursor as its last argument and replies the
// next one first. The function read reads the rest of each reply.
func (s *Store) eachBatch(ctx context.Context, sc *script, partition int, read func(*reply), args ...any) error {
	for cursor := "0"; ; {
		r := s.run(ctx, sc, partition, append(args[:len(args):len(args)], cursor)...)
		cursor = r.text()
		read(r)
		if r.bad != nil || cursor == "0" {
			return r.bad
		}
	}
}

// TakeDeletion implements discovery.RegistryStore.
func (s *Store) TakeDeletion(ctx context.Context, path string) (bool, error) {
	r := s.run(ctx, scriptTakeDeletion, s.PartitionOf(path), path)
	return r.yes(), r.err()
}

// WatchedIn implements discovery.RecordStore.
func (s *Store) WatchedIn(ctx context.Context, path string) (partitions []int, err error) {
	watched := make([]*redis.IntCmd, s.keys.partitions)
	pipe := s.rdb.Pipeline()
	for p := range watched {
		watched[p] = pipe.Exists(ctx, s.keys.partition(p)+"w:"+path)
	}
	_, err = pipe.Exec(ctx)
	for p, cmd := range watched {
		if cmd.Val() > 0 {
			partitions = append(partitions, p)
		}
	}
	return partitions, wrap(err)
}

// watchedBatch is how many watched streams one call reads.
const watchedBatch = 1000

// WatchedSince implements tailer.TailStore.
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

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// RegistryPlace implements discovery.RegistryStore.
func (s *Store) RegistryPlace(ctx context.Context) (fsm.RegistryPlace, error) {
	values, err := s.rdb.MGet(ctx, s.registryKeys()...).Result()
	if err = wrap(err); err != nil {
		return fsm.RegistryPlace{}, err
	}
	var texts [3]string
	for i, v := range values {
		texts[i], _ = v.(string) // nil without a value
	}
	at := fsm.RegistryPlace{Offset: cmp.Or(fsm.Offset(texts[0]), fsm.Start), Mark: texts[1]}
	if texts[2] != "" {
		micros, err := strconv.ParseInt(texts[2], 10, 64)
		if err != nil {
			return fsm.RegistryPlace{}, fmt.Errorf("since when the registry stream is another one: %w", err)
		}
		at.Since = time.UnixMicro(micros)
	}
	return at, nil
}

func (s *Store) registryKeys() []string {
	return []string{s.keys.registry(), s.keys.registryMark(), s.keys.registrySince()}
}

// RegistryRead implements discovery.RegistryStore.
func (s *Store) RegistryRead(ctx context.Context) (bool, error) {
	n, err := s.rdb.Exists(ctx, s.keys.registryRead()).Result()
	return n > 0, wrap(err)
}

// SetRegistryRead implements discovery.RegistryStore.
func (s *Store) SetRegistryRead(ctx context.Context) error {
	return wrap(s.rdb.Set(ctx, s.keys.registryRead(), "", 0).Err())
}

// MoveRegistry implements discovery.RegistryStore.
func (s *Store) MoveRegistry(ctx context.Context, from, to fsm.RegistryPlace, anew bool) (moved bool, err error) {
	r := s.call(ctx, scriptMoveRegistry, s.registryKeys(),
		string(from.Offset), from.Mark, string(to.Offset), to.Mark, flag(anew))
	return r.yes(), r.err()
}
