package memstore

import (
	"context"
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
