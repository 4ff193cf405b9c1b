package memstore

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// keep keeps a dead letter, and returns its number.
func (t *tx) keep(p *partition, l fsm.DeadLetter) int64 {
	l.ID = fsm.LetterID{Partition: slices.Index(t.partitions, p), Number: t.nextStamp()}
	l.DeadAt = time.UnixMicro(l.ID.Number)
	p.letters = append(p.letters, l)
	return l.ID.Number
}

// leave keeps the dead letter of a consumer. It returns the letter's number if the consumer is given up and so must
// remember it, otherwise 0.
func (t *tx) leave(p *partition, c fsm.Consumer, e spec.Effects, o *fsm.Outcome) int64 {
	n, last := t.keep(p, *e.Dead), len(o.Left)-1
	left := fsm.Left{Subscription: c.Subscription, Stream: c.Primary, Cause: e.Cause, Letters: 1}
	switch {
	case e.Cause == "" && c.State == fsm.GivenUp:
		return n
	case e.Cause == "":
	case last >= 0 && o.Left[last].Subscription == left.Subscription && o.Left[last].Stream == left.Stream:
		o.Left[last].Letters++
	default:
		o.Left = append(o.Left, left)
	}
	return 0
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

// DeadLetters implements control.LetterStore.
func (s *Store) DeadLetters(
	ctx context.Context, span fsm.LetterSpan, most int,
) (list []fsm.DeadLetter, err error) {
	err = s.do(ctx, func(t *tx) {
		list = t.spanned(span, most)
	}, "DeadLetters", span, most)
	return list, err
}

// DropDeadLetters implements control.LetterStore.
func (s *Store) DropDeadLetters(
	ctx context.Context, span fsm.LetterSpan, most int,
) (w fsm.LetterWork, o fsm.Outcome, err error) {
	err = s.do(ctx, func(t *tx) {
		list, p := t.spanned(span, math.MaxInt), t.partitions[span.Partition]
		list = list[max(len(list)-most, 0):]
		slices.Reverse(list)
		for _, l := range list {
			if span.Stream == "" || l.Consumer == fsm.ConsumerID(span.Subscription, span.Stream) {
				w.Done++
				t.dropLetter(p, l, &o)
			}
		}
		w.Looked, w.Last = looked(list)
	}, "DropDeadLetters", span, most)
	return w, o, err
}

// looked returns how many letters were looked at, and the number of the last one.
func looked(list []fsm.DeadLetter) (n int, last int64) {
	if n = len(list); n > 0 {
		last = list[n-1].ID.Number
	}
	return n, last
}

// dropNumbered drops the dead letter of a number, if it is kept.
func (t *tx) dropNumbered(p *partition, number int64, o *fsm.Outcome) {
	if i := slices.IndexFunc(p.letters, func(l fsm.DeadLetter) bool { return l.ID.Number == number }); i >= 0 {
		t.dropLetter(p, p.letters[i], o)
	}
}

// dropLetter drops a dead letter, and its replay with it.
func (t *tx) dropLetter(p *partition, l fsm.DeadLetter, o *fsm.Outcome) {
	n := l.ID.Number
	p.letters = slices.DeleteFunc(slices.Clone(p.letters), func(l fsm.DeadLetter) bool { return l.ID.Number == n })
	if c, there := p.consumers[l.Consumer]; there && c.Replaying == n {
		t.replayEnds(p, c, o)
	} else if there {
		p.unqueue(c.ID, n)
	}
}

// LettersOf implements control.LetterStore.
func (s *Store) LettersOf(ctx context.Context, ids []string) (byPartition []fsm.LetterCounts, err error) {
	byPartition, err = s.CountDeadLetters(ctx)
	for _, counts := range byPartition {
		maps.DeleteFunc(counts.Of, func(id string, _ int) bool { return !slices.Contains(ids, id) })
	}
	return byPartition, err
}

// CountDeadLetters counts the letters of each partition, and of each subscription that has some.
func (s *Store) CountDeadLetters(ctx context.Context) (byPartition []fsm.LetterCounts, err error) {
	err = s.do(ctx, func(t *tx) {
		for _, p := range t.partitions {
			counts := fsm.LetterCounts{All: len(p.letters), Of: map[string]int{}}
			_, counts.Last = looked(p.letters)
			for _, l := range p.letters {
				counts.Of[l.Subscription]++
			}
			byPartition = append(byPartition, counts)
		}
	}, "CountDeadLetters")
	return byPartition, err
}
