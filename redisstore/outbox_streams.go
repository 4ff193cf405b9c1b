package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// UnusedStreams implements control.OutboxStore.
func (s *Store) UnusedStreams(ctx context.Context) (streams []string, err error) {
	owned := s.ownership.Partitions()
	cmds, pipe := make([]*redis.StringSliceCmd, len(owned)), s.rdb.Pipeline()
	for i, p := range owned {
		cmds[i] = pipe.ZRangeByScore(ctx, s.keys.eventStreams(p), &redis.ZRangeBy{Min: "-inf", Max: "0"})
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, cmd := range cmds {
		found, failed := cmd.Result()
		if failed != nil {
			err = wrap(failed)
		}
		streams = append(streams, found...)
	}
	return streams, err
}

// BeginRemoval implements control.OutboxStore.
func (s *Store) BeginRemoval(
	ctx context.Context, stream, consumer string, tail fsm.Offset,
) (begun bool, err error) {
	r := s.run(ctx, scriptBeginRemoval, s.PartitionOf(stream), stream, consumer, string(tail))
	return r.yes(), r.err()
}

// EndRemoval implements control.OutboxStore.
func (s *Store) EndRemoval(ctx context.Context, stream string) (ended bool, err error) {
	r := s.run(ctx, scriptEndRemoval, s.PartitionOf(stream), stream)
	return r.yes(), r.err()
}

func errRemoving(stream string) error {
	return fmt.Errorf("%w: the stream %s is being removed", fsm.ErrUnavailable, stream)
}
