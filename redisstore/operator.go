package redisstore

import (
	"context"

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
	r := s.run(ctx, scriptScanConsumers, partition, sub.ID, sub.Generation, cursor, count)
	r.list(func(l *reply) {
		next = l.text()
		l.each(func(consumers *reply) { list = append(list, consumers.consumer()) })
	})
	return list, next, r.bad
}

// consumer reads a consumer's record as scan_consumers.lua returns it.
func (r *reply) consumer() (c fsm.Consumer) {
	r.list(func(l *reply) {
		id, fields := l.text(), map[string]string{}
		for len(l.items) > 0 && l.bad == nil {
			fields[l.text()] = l.text()
		}
		if l.bad == nil {
			c, l.bad = decodeConsumer(id, fields)
		}
	})
	return c
}
