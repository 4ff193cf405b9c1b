package redisstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

const (
	// countBatch is how many commands one pipeline has at most.
	countBatch = 1000
	// tallyCalls is how many partitions one pipeline tallies. Its calls together look at tallyBatch consumers, and
	// count tallySets sets. Redis may carry out the whole pipeline before it turns to another client.
	tallyCalls = 16
	tallyBatch = 1600
	tallySets  = 4096
	// tallyMost bounds the consumers that one tally looks at.
	tallyMost = 20_000
)

// talliedLists are the lists that tally.lua goes along.
var talliedLists = []string{"waiting", "aside", "retired", "live", "given_up", "hidden", "failing"}

// CountConsumers implements control.Store.
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

// CountPending implements control.Store.
func (s *Store) CountPending(ctx context.Context) (pending int, waiting time.Time, err error) {
	pipe := s.rdb.Pipeline()
	var sizes []*redis.IntCmd
	var oldest []*redis.ZSliceCmd
	for p := range s.keys.partitions {
		prefix := s.keys.partition(p)
		for _, list := range []string{"waiting", "aside", "live"} {
			sizes = append(sizes, pipe.ZCard(ctx, prefix+list))
		}
		for _, list := range []string{"waiting", "aside", "retired"} {
			oldest = append(oldest, pipe.ZRangeWithScores(ctx, prefix+list, 0, 0))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, waiting, wrap(err)
	}
	for _, size := range sizes {
		pending += int(size.Val())
	}
	for _, first := range oldest {
		for _, z := range first.Val() {
			if since := time.UnixMilli(int64(z.Score)); waiting.IsZero() || since.Before(waiting) {
				waiting = since
			}
		}
	}
	return pending, waiting, nil
}

// TallyConsumers implements control.Store.
func (s *Store) TallyConsumers(ctx context.Context, subs []fsm.Subscription) ([]fsm.Tally, error) {
	return s.tallyWithin(ctx, subs, tallyBatch, tallyMost)
}

// tallyWithin tallies subscriptions, and looks at no more consumers than bound says. If all consumers that are on lists
// are not more, it goes along these lists. Otherwise it looks at the subscriptions' own consumers.
func (s *Store) tallyWithin(ctx context.Context, subs []fsm.Subscription, most, bound int) ([]fsm.Tally, error) {
	listed, pipe := 0, s.rdb.Pipeline()
	var sizes []*redis.IntCmd
	for p := range s.keys.partitions {
		for _, list := range talliedLists {
			sizes = append(sizes, pipe.ZCard(ctx, s.keys.partition(p)+list))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, wrap(err)
	}
	for _, size := range sizes {
		listed += int(size.Val())
	}
	if listed <= bound {
		return s.tally(ctx, subs, most)
	}
	return s.tallyEach(ctx, subs, most, bound)
}

// TallyEach is TallyConsumers as it goes if many consumers are on lists: it looks at the subscriptions' own consumers,
// at no more than bound of them.
func (s *Store) TallyEach(ctx context.Context, subs []fsm.Subscription, bound int) ([]fsm.Tally, error) {
	return s.tallyEach(ctx, subs, tallyBatch, bound)
}

// eachCall is a call of tally_each.lua, which looks at so many consumers.
type eachCall struct {
	partition, looks int
	args             []any
}

// tallyEach tallies subscriptions by their own consumers. It looks at no more than bound says, and at no more than most
// of a subscription in a partition. Those with the fewest consumers get their share first: one large subscription hides
// no other.
func (s *Store) tallyEach(ctx context.Context, subs []fsm.Subscription, most, bound int) ([]fsm.Tally, error) {
	counts, err := s.CountConsumers(ctx, subs)
	if err != nil {
		return nil, err
	}
	tallies, looks := make([]fsm.Tally, len(subs)), make([][]int, len(subs))
	for _, i := range smallestFirst(counts) {
		byPartition := counts[i]
		looks[i] = make([]int, len(byPartition))
		for p, n := range byPartition {
			looks[i][p] = min(n, most, bound)
			bound -= looks[i][p]
			tallies[i].Partial = tallies[i].Partial || looks[i][p] < n
		}
	}
	var calls []*eachCall
	for p := range s.keys.partitions {
		var call *eachCall
		for i, sub := range subs {
			if counts[i][p] == 0 {
				continue
			}
			n := looks[i][p]
			if call == nil || call.looks+n > most/tallyCalls || len(call.args) >= tallySets/tallyCalls*4 {
				call = &eachCall{partition: p}
				calls = append(calls, call)
			}
			call.looks += n
			call.args = append(call.args, i+1, sub.ID, sub.Generation, n)
		}
	}
	for len(calls) > 0 {
		n, looked := 0, 0
		for n < min(len(calls), tallyCalls) && (n == 0 || looked+calls[n].looks <= most) {
			looked += calls[n].looks
			n++
		}
		batch := calls[:n]
		calls = calls[n:]
		for _, r := range s.pipeline(ctx, scriptTallyEach, n, func(i int) ([]string, []any) {
			return s.keys.guard(batch[i].partition), s.arguments(batch[i].partition, batch[i].args...)
		}) {
			r.each(func(rows *reply) {
				rows.list(func(l *reply) {
					if t := l.tally(tallies); l.yes() && t != nil { // it may have grown since it was counted
						t.Partial = true
					}
				})
			})
			if r.bad != nil {
				return nil, r.bad
			}
		}
	}
	for i := range tallies {
		if !tallies[i].Partial {
			restAreIdle(&tallies[i])
		}
	}
	return tallies, nil
}

// smallestFirst returns the indexes of lists of numbers, in the order of their sums.
func smallestFirst(counts [][]int) []int {
	order, sums := make([]int, len(counts)), make([]int, len(counts))
	for i, list := range counts {
		order[i] = i
		for _, n := range list {
			sums[i] += n
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return sums[a] - sums[b] })
	return order
}

// tally tallies subscriptions. The number most is about how many consumers one pipeline looks at.
func (s *Store) tally(ctx context.Context, subs []fsm.Subscription, most int) ([]fsm.Tally, error) {
	wanted := make([]any, 0, 2*len(subs))
	for _, sub := range subs {
		wanted = append(wanted, sub.ID, sub.Generation)
	}
	// parts are the tallies by partition. If two are equal in something, the earlier one decides. So they are added in
	// the order of the partitions, not as they become complete.
	parts, cursors := make([][]fsm.Tally, s.keys.partitions), make([]string, s.keys.partitions)
	left := make([]int, s.keys.partitions)
	for p := range left {
		left[p], cursors[p], parts[p] = p, "0", make([]fsm.Tally, len(subs))
	}
	atATime := min(tallyCalls, max(1, tallySets/max(1, len(subs))))
	for len(left) > 0 {
		batch := left[:min(len(left), atATime)]
		left = left[len(batch):]
		for i, r := range s.pipeline(ctx, scriptTally, len(batch), func(i int) ([]string, []any) {
			p := batch[i]
			own := append([]any{cursors[p], max(1, most/len(batch))}, wanted...)
			return s.keys.guard(p), s.arguments(p, own...)
		}) {
			p := batch[i]
			cursors[p] = r.text()
			r.each(func(rows *reply) { rows.list(func(l *reply) { l.tally(parts[p]) }) })
			if r.bad != nil {
				return nil, r.bad
			}
			if cursors[p] != "0" {
				left = append(left, p)
			}
		}
	}
	tallies := make([]fsm.Tally, len(subs))
	for _, part := range parts {
		for i := range tallies {
			tallies[i].Add(part[i])
		}
	}
	for i := range tallies {
		restAreIdle(&tallies[i])
	}
	return tallies, nil
}

// restAreIdle counts as idle what is in no other state.
func restAreIdle(t *fsm.Tally) { t.Idle = max(0, t.Consumers+t.Asides-t.Waking-t.Live-t.GivenUp) }

// tally reads what tally.lua returns for one subscription, and adds it to the tallies of the partition. It returns the
// sum, or nil if it cannot be read.
func (r *reply) tally(tallies []fsm.Tally) *fsm.Tally {
	of := r.int() - 1
	consumers, asides, waking, live, givenUp, pending, failing, retired, hidden :=
		r.int(), r.int(), r.int(), r.int(), r.int(), r.int(), r.int(), r.int(), r.int()
	since, why, waiting := moment(r.int()), r.text(), moment(r.int())
	if r.bad == nil && (of < 0 || of >= int64(len(tallies))) {
		r.fail("a subscription that was not asked for")
	}
	if r.bad != nil {
		return nil
	}
	tallies[of].Add(fsm.Tally{
		Consumers: int(consumers), Asides: int(asides),
		Waking: int(waking), Live: int(live), GivenUp: int(givenUp), Pending: int(pending),
		Failing: int(failing), Retired: int(retired), Hidden: int(hidden), FailingSince: since, LastError: why,
		WaitingSince: waiting,
	})
	return &tallies[of]
}

// ScanConsumers implements control.Store.
func (s *Store) ScanConsumers(
	ctx context.Context, sub fsm.Subscription, partition int, cursor string, count int,
) (list []fsm.Consumer, next string, err error) {
	r := s.run(ctx, scriptScanConsumers, partition, sub.ID, sub.Generation, cursor, count)
	next = r.text()
	r.each(func(consumers *reply) { list = append(list, consumers.consumer()) })
	return list, next, r.bad
}

// quarantined returns what is known of a consumer whose record cannot be read.
func quarantined(id, why string) fsm.Consumer {
	sub, primary, _ := fsm.ParseAnyConsumerID(id)
	owner := fsm.ConsumerID(sub, primary)
	if owner == id {
		owner = ""
	}
	return fsm.Consumer{
		ID: id, Subscription: sub, Primary: primary, Owner: owner,
		Lease:    fsm.Lease{State: fsm.InQuarantine},
		Attempts: fsm.Attempts{LastError: why[:min(len(why), fsm.MaxReason)]},
	}
}

// consumer reads a consumer's record as scan_consumers.lua returns it.
func (r *reply) consumer() (c fsm.Consumer) {
	r.list(func(l *reply) {
		id, text, fields := l.text(), l.text(), map[string]string{}
		for len(l.items) > 0 && l.bad == nil {
			fields[l.text()] = l.text()
		}
		if l.bad != nil {
			return
		}
		var bad error
		if c, bad = decodeConsumer(id, text, fields); bad != nil {
			c = quarantined(id, cmp.Or(fields["quarantined"], strings.TrimPrefix(bad.Error(), "redis: ")))
		}
		clear(c.Links)
	})
	return c
}
