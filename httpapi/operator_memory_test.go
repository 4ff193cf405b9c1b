package httpapi

import (
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"reveille/fsm"
)

// memoryPartitions is how many partitions a memory has.
const memoryPartitions = 4

func (m *memory) Partitions() int { return memoryPartitions }

func (m *memory) PartitionOf(path string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(path))
	return int(h.Sum32() % memoryPartitions)
}

func (m *memory) Consumer(_ context.Context, id, _ string) (fsm.Consumer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return fsm.Consumer{}, m.err
	}
	c, ok := m.consumers[id]
	if !ok {
		return fsm.Consumer{}, fsm.ErrNotFound
	}
	return c, nil
}

func (m *memory) in(sub fsm.Subscription, partition int) (list []fsm.Consumer) {
	for _, c := range m.consumers {
		if c.Subscription == sub.ID && c.Generation == sub.Generation && m.PartitionOf(c.Primary) == partition {
			list = append(list, c)
		}
	}
	return list
}

func (m *memory) CountConsumers(_ context.Context, subs []fsm.Subscription) ([][]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make([][]int, len(subs))
	for i, sub := range subs {
		for p := range memoryPartitions {
			counts[i] = append(counts[i], len(m.in(sub, p)))
		}
	}
	return counts, m.err
}

// ScanConsumers takes the consumers by the length of their IDs, so that batches are not in order.
func (m *memory) ScanConsumers(_ context.Context, sub fsm.Subscription, partition int, cursor string, _ int) ([]fsm.Consumer, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scans++
	all := m.in(sub, partition)
	slices.SortFunc(all, func(a, b fsm.Consumer) int {
		if len(a.ID) != len(b.ID) {
			return len(a.ID) - len(b.ID)
		}
		return strings.Compare(b.ID, a.ID)
	})
	list, next := some(all, cursor, max(m.batch, 3))
	return list, next, m.err
}

func (m *memory) ScanKnown(_ context.Context, partition int, cursor string) ([]fsm.Known, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []fsm.Known
	for _, k := range m.known {
		if m.PartitionOf(k.Path) == partition {
			all = append(all, k)
		}
	}
	list, next := some(all, cursor, 3)
	return list, next, m.err
}

func (m *memory) WatchedSince(_ context.Context, partition int, seq int64) (list []fsm.Watched, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, k := range m.known {
		if m.PartitionOf(k.Path) == partition && int64(i+1) > seq && len(list) < 3 {
			list = append(list, fsm.Watched{Path: k.Path, Tail: "0001", Seq: int64(i + 1)})
		}
	}
	return list, m.err
}

func some[T any](all []T, cursor string, n int) ([]T, string) {
	from, _ := strconv.Atoi(cursor)
	to := min(from+n, len(all))
	if to == len(all) {
		return all[from:], "0"
	}
	return all[from:to], strconv.Itoa(to)
}
