package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// countBatch is how many sets are counted in one go.
const countBatch = 1000

// CountConsumers implements fsm.OperatorStore.
func (s *Store) CountConsumers(ctx context.Context, subs []fsm.Subscription) ([][]int, error) {
	counts := make([][]int, len(subs))
	for i := range counts {
		counts[i] = make([]int, s.keys.partitions)
	}
	total := len(subs) * s.keys.partitions
	for from := 0; from < total; from += countBatch {
		cmds := make([]*redis.IntCmd, min(countBatch, total-from))
		pipe := s.rdb.Pipeline()
		for i := range cmds {
			sub, p := (from+i)/s.keys.partitions, (from+i)%s.keys.partitions
			cmds[i] = pipe.SCard(ctx, s.keys.consumersOf(subs[sub], p))
		}
		if _, err := pipe.Exec(ctx); wrap(err) != nil {
			return nil, wrap(err)
		}
		for i, cmd := range cmds {
			counts[(from+i)/s.keys.partitions][(from+i)%s.keys.partitions] = int(cmd.Val())
		}
	}
	return counts, nil
}

// ScanConsumers implements fsm.OperatorStore.
func (s *Store) ScanConsumers(
	ctx context.Context, sub fsm.Subscription, partition int, cursor string, count int,
) (list []fsm.Consumer, next string, err error) {
	r, err := newReply(s.run(ctx, scriptScanConsumers, partition, sub.ID, sub.Generation, cursor, count))
	if err != nil {
		return nil, "", err
	}
	next = r.text()
	r.within(func(consumers *reply) {
		raw := consumers.list()
		id, fields := raw.text(), map[string]string{}
		for len(raw.items) > 0 && raw.bad == nil {
			fields[raw.text()] = raw.text()
		}
		c, bad := decodeConsumer(id, fields)
		if bad != nil || raw.bad != nil {
			consumers.bad = errors.Join(raw.bad, bad)
		}
		list = append(list, c)
	})
	return list, next, r.bad
}
