package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"reveille/fsm"
)

// keep keeps a dead letter.
func (t *tx) keep(p *partition, l fsm.DeadLetter) {
	l.ID = fsm.LetterID{Partition: slices.Index(t.partitions, p), Number: t.nextStamp()}
	l.DeadAt = time.UnixMicro(l.ID.Number)
	p.letters = append(p.letters, l)
}

// spanned returns the first letters of a span.
func (t *tx) spanned(span fsm.LetterSpan, most int) (list []fsm.DeadLetter) {
	for _, l := range t.partitions[span.Partition].letters {
		within := l.ID.Number >= span.From && l.ID.Number <= span.Through
		if within && len(list) < most && (span.Subscription == "" || span.Subscription == l.Subscription) {
			list = append(list, l)
		}
	}
	return list
}

// DeadLetters implements fsm.LetterStore.
func (s *Store) DeadLetters(
	ctx context.Context, span fsm.LetterSpan, most int,
) (list []fsm.DeadLetter, err error) {
	err = s.call(ctx, func(t *tx) error {
		list = t.spanned(span, most)
		return nil
	}, "DeadLetters", span, most)
	return list, err
}

// DropDeadLetters implements fsm.LetterStore.
func (s *Store) DropDeadLetters(ctx context.Context, span fsm.LetterSpan, most int) (n int, err error) {
	err = s.call(ctx, func(t *tx) error {
		dropped, p := t.spanned(span, most), t.partitions[span.Partition]
		p.letters = slices.DeleteFunc(slices.Clone(p.letters), func(l fsm.DeadLetter) bool {
			return slices.ContainsFunc(dropped, func(d fsm.DeadLetter) bool { return d.ID == l.ID })
		})
		n = len(dropped)
		return nil
	}, "DropDeadLetters", span, most)
	return n, err
}

// ReplayDeadLetters implements fsm.LetterStore.
func (s *Store) ReplayDeadLetters(
	ctx context.Context, span fsm.LetterSpan, most int,
) (replay fsm.Replay, o fsm.Outcome, err error) {
	err = s.call(ctx, func(t *tx) error {
		p := t.partitions[span.Partition]
		for _, l := range t.spanned(span, most) {
			replay.Last = l.ID.Number
			id := l.Consumer
			if of, aside := fsm.AsideOf(id); aside {
				id = of
			}
			c, there := p.consumers[id]
			if _, deleted := p.deleted[c.Generation]; !there || deleted || !c.Replays(l) {
				replay.Refused++
				continue
			}
			replay.Queued++
			if at, there := slices.BinarySearch(p.replays[id], l.ID.Number); !there {
				p.replays[id] = slices.Insert(slices.Clone(p.replays[id]), at, l.ID.Number)
			}
			t.replayNext(p, id, &o)
		}
		return nil
	}, "ReplayDeadLetters", span, most)
	return replay, o, err
}

// replayNext begins the replay of the first letter of a consumer that waits for it, unless one is under way. Letters
// that were dropped meanwhile are passed over.
func (t *tx) replayNext(p *partition, id string, o *fsm.Outcome) {
	c, there := p.consumers[id]
	if _, deleted := p.deleted[c.Generation]; !there || deleted || c.Replaying != 0 {
		return
	}
	for len(p.replays[id]) > 0 {
		n := p.replays[id][0]
		i := slices.IndexFunc(p.letters, func(l fsm.DeadLetter) bool { return l.ID.Number == n })
		if i < 0 || !c.Replays(p.letters[i]) {
			p.replayed(id, n)
			continue
		}
		t.fence(p)
		aside, e := c.ReplayLetter(t.env(p, fsm.AsideID(id, n)), p.letters[i])
		c.Replaying, c.Asides = n, c.Asides+1
		p.store(c)
		t.put(p, aside, e, o)
		return
	}
}

// replayed takes a letter off those that are to be replayed.
func (p *partition) replayed(id string, n int64) {
	p.replays[id] = slices.DeleteFunc(slices.Clone(p.replays[id]), func(m int64) bool { return m == n })
	if len(p.replays[id]) == 0 {
		delete(p.replays, id)
	}
}

// replayOver follows the end of a replay: its letter is dropped, and the next one begins.
func (t *tx) replayOver(p *partition, aside fsm.Consumer, o *fsm.Outcome) {
	of, _ := fsm.AsideOf(aside.ID)
	p.letters = slices.DeleteFunc(slices.Clone(p.letters), func(l fsm.DeadLetter) bool {
		return l.ID.Number == aside.Replay
	})
	p.replayed(of, aside.Replay)
	if c, there := p.consumers[of]; there {
		c.Replaying = 0
		p.store(c)
	}
	t.replayNext(p, of, o)
}

// Replays returns the numbers of the dead letters that are to be replayed, by consumer.
func (db *DB) Replays() (replays map[string][]int64) {
	db.edit(func(t *tx) {
		replays = map[string][]int64{}
		for _, p := range t.partitions {
			maps.Copy(replays, p.replays)
		}
	})
	return replays
}

// CountDeadLetters implements fsm.LetterStore.
func (s *Store) CountDeadLetters(ctx context.Context) (byPartition []map[string]int, err error) {
	err = s.call(ctx, func(t *tx) error {
		for _, p := range t.partitions {
			counts := map[string]int{}
			for _, l := range p.letters {
				counts[l.Subscription]++
			}
			byPartition = append(byPartition, counts)
		}
		return nil
	}, "CountDeadLetters")
	return byPartition, err
}
