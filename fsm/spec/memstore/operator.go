package memstore

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// of returns the IDs of a subscription's consumers in a partition.
func (t *tx) of(sub fsm.Subscription, partition int) []string {
	p := t.partitions[partition]
	if p.order == nil {
		p.order = map[generation][]string{}
		for _, id := range disorder(p.consumers) {
			c := p.consumers[id]
			of := generation{c.Subscription, c.Generation}
			p.order[of] = append(p.order[of], id)
		}
	}
	return p.order[generation{sub.ID, sub.Generation}]
}

// CountConsumers implements control.Store.
func (s *Store) CountConsumers(ctx context.Context, subs []fsm.Subscription) (counts [][]int, err error) {
	err = s.do(ctx, func(t *tx) {
		counts = make([][]int, len(subs))
		for i, sub := range subs {
			for n := range t.partitions {
				counts[i] = append(counts[i], len(t.of(sub, n)))
			}
		}
	}, "CountConsumers", subs)
	return counts, err
}

// TallyConsumers implements control.Store.
func (s *Store) TallyConsumers(ctx context.Context, subs []fsm.Subscription) (tallies []fsm.Tally, err error) {
	err = s.do(ctx, func(t *tx) {
		tallies = make([]fsm.Tally, len(subs))
		for i, sub := range subs {
			for _, p := range t.partitions {
				if _, deleted := p.deleted[sub.Generation]; !deleted {
					tallies[i].Add(p.tally(sub, t.now()))
				}
			}
		}
	}, "TallyConsumers", subs)
	return tallies, err
}

// tally counts the consumers of a subscription in the order of their FirstFailure.
func (p *partition) tally(sub fsm.Subscription, now time.Time) (tally fsm.Tally) {
	for _, c := range slices.SortedFunc(maps.Values(p.consumers), func(a, b fsm.Consumer) int {
		return cmp.Or(a.FirstFailure.Compare(b.FirstFailure), cmp.Compare(a.ID, b.ID))
	}) {
		if c.Subscription == sub.ID && c.Generation == sub.Generation {
			spec.Count(&tally, c.AsOf(now))
		}
	}
	return tally
}

// ScanConsumers implements control.Store.
func (s *Store) ScanConsumers(
	ctx context.Context, sub fsm.Subscription, partition int, cursor string, count int,
) (list []fsm.Consumer, after string, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.partitions[partition]
		ids, next := some(t.of(sub, partition), cursor, min(count, t.db.opts.Batch))
		for _, id := range ids {
			c := p.consumers[id]
			c.Links = map[string]fsm.Link{}
			list = append(list, c)
		}
		after = next
	}, "ScanConsumers", sub, partition, cursor, count)
	return list, after, err
}

// disorder returns the keys of a map in an order that is fixed but looks random, so that no caller relies on it.
func disorder[T any](all map[string]T) []string {
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(hash(a), hash(b)), cmp.Compare(a, b))
	})
}

// some returns n names from a cursor on, and the cursor after them.
func some(all []string, cursor string, n int) (names []string, next string) {
	from, _ := strconv.Atoi(cursor) // only this function writes it
	from = min(from, len(all))
	if n >= len(all)-from {
		return all[from:], "0"
	}
	return all[from : from+n], strconv.Itoa(from + n)
}

func hash(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()
}
