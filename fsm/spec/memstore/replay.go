package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// queued is one replay of a consumer: a dead letter with its number, or else a span.
type queued struct {
	number int64
	span   fsm.ReplaySpan
}

// ReplayDeadLetters implements control.ReplayStore.
func (s *Store) ReplayDeadLetters(
	ctx context.Context, span fsm.LetterSpan, most int,
) (w fsm.LetterWork, o fsm.Outcome, err error) {
	err = s.do(ctx, func(t *tx) {
		list, p := t.spanned(span, most), t.partitions[span.Partition]
		for _, l := range list {
			c, there := p.standing(l.Consumer)
			switch {
			case span.Stream != "" && l.Consumer != fsm.ConsumerID(span.Subscription, span.Stream):
			case !there || !spec.Replays(c, l):
				w.Refused++
			case spec.OfGivenUp(l):
				w.Done++
				c, e := spec.Revive(c, t.env(p, c.ID))
				t.put(p, c, e, &o)
			default:
				w.Done++
				t.queue(p, c.ID, queued{number: l.ID.Number}, &o)
			}
		}
		w.Looked, w.Last = looked(list)
	}, "ReplayDeadLetters", span, most)
	return w, o, err
}

// ReplaySpan implements control.ReplayStore.
func (s *Store) ReplaySpan(
	ctx context.Context, r fsm.ConsumerRef, born int64, span fsm.ReplaySpan,
) (number int64, o fsm.Outcome, err error) {
	err = s.call(ctx, func(t *tx) error {
		p := t.home(r.Home)
		c, there := p.standing(r.ID)
		if !there || c.Born != born {
			return fsm.ErrNotFound
		}
		spans := 0
		for _, q := range p.replays[c.ID] {
			if q.span == span {
				number = q.number
				return nil
			}
			if q.span != (fsm.ReplaySpan{}) {
				spans++
			}
		}
		if spans == fsm.MaxReplaySpans {
			return fsm.ErrTooManyReplays
		}
		number = t.nextStamp()
		t.queue(p, c.ID, queued{number, span}, &o)
		return nil
	}, "ReplaySpan", r, born, span)
	return number, o, err
}

// ReplayQueues implements control.ReplayStore.
func (s *Store) ReplayQueues(
	ctx context.Context, partition int, subscription, after string, most int,
) (queues []fsm.ReplayQueue, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.partitions[partition]
		for _, id := range slices.Sorted(maps.Keys(p.replays)) {
			c := p.consumers[id]
			if id <= after || subscription != "" && c.Subscription != subscription || len(queues) == most {
				continue
			}
			aside := p.consumers[fsm.AsideID(id, c.Replaying)]
			at := aside.Links[c.Primary]
			span := slices.ContainsFunc(p.replays[id], func(q queued) bool {
				return q.number == c.Replaying && q.span != fsm.ReplaySpan{}
			})
			queues = append(queues, fsm.ReplayQueue{
				Consumer: id, Subscription: c.Subscription, Stream: c.Primary,
				Waiting: len(p.replays[id]), Done: int(c.Replayed),
				Number: c.Replaying, Span: span, At: at.Acked, To: at.Tail,
				Attempt: aside.Attempt, FirstFailure: aside.FirstFailure, LastError: aside.LastError,
			})
		}
	}, "ReplayQueues", partition, subscription, after, most)
	return queues, err
}

// CancelReplays implements control.ReplayStore.
func (s *Store) CancelReplays(ctx context.Context, r fsm.ConsumerRef) (n int, o fsm.Outcome, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(r.Home)
		c, there := p.consumers[r.ID]
		if !there {
			return
		}
		n = len(p.replays[c.ID])
		if aside, there := p.consumers[fsm.AsideID(c.ID, c.Replaying)]; there && c.Replaying != 0 {
			t.put(p, aside, spec.Remove(aside, fsm.RemovedStreamDeleted), &o) // the cause of an aside is not reported
		}
		delete(p.replays, c.ID)
		c = p.consumers[c.ID]
		c.Replaying, c.Replayed = 0, 0
		p.store(c)
	}, "CancelReplays", r)
	return n, o, err
}

// standing returns a consumer, unless its subscription is deleted.
func (p *partition) standing(id string) (fsm.Consumer, bool) {
	c, there := p.consumers[id]
	_, deleted := p.deleted[c.Generation]
	return c, there && !deleted
}

// queue puts a replay into a consumer's queue, unless it is there already.
func (t *tx) queue(p *partition, id string, q queued, o *fsm.Outcome) {
	at, there := slices.BinarySearchFunc(p.replays[id], q, byNumber)
	if !there {
		p.replays[id] = slices.Insert(slices.Clone(p.replays[id]), at, q)
	}
	t.replayNext(p, id, o)
}

func byNumber(a, b queued) int { return cmp.Compare(a.number, b.number) }

// replayNext begins the first replay in a consumer's queue, unless one is under way.
func (t *tx) replayNext(p *partition, id string, o *fsm.Outcome) {
	c, there := p.standing(id)
	if !there || c.Replaying != 0 || len(p.replays[id]) == 0 {
		return
	}
	q := p.replays[id][0]
	if q.span == (fsm.ReplaySpan{}) {
		i := slices.IndexFunc(p.letters, func(l fsm.DeadLetter) bool { return l.ID.Number == q.number })
		q.span = fsm.ReplaySpan{From: p.letters[i].From, To: p.letters[i].Within}
	}
	t.fence(p)
	aside, e := spec.StartReplay(c, t.env(p, fsm.AsideID(id, q.number)), q.number, q.span, p.floor)
	c.Replaying, c.Asides = q.number, c.Asides+1
	p.store(c)
	t.put(p, aside, e, o)
}

// unqueue takes a number out of a consumer's replay queue, if it is there.
func (p *partition) unqueue(id string, number int64) {
	left := slices.DeleteFunc(slices.Clone(p.replays[id]), func(q queued) bool { return q.number == number })
	if len(left) > 0 {
		p.replays[id] = left
		return
	}
	delete(p.replays, id)
	if c, there := p.consumers[id]; there {
		c.Replayed = 0
		p.store(c)
	}
}

// replayEnds ends or cancels the replay under way, and begins the next one.
func (t *tx) replayEnds(p *partition, c fsm.Consumer, o *fsm.Outcome) {
	n := c.Replaying
	if aside, there := p.consumers[fsm.AsideID(c.ID, n)]; there {
		t.put(p, aside, spec.Remove(aside, fsm.RemovedStreamDeleted), o) // the cause of an aside is not reported
		c = p.consumers[c.ID]
	}
	c.Replaying = 0
	p.store(c)
	p.unqueue(c.ID, n)
	t.replayNext(p, c.ID, o)
}

// replayOver follows the end of a replay: it drops the letter, and begins the next replay.
func (t *tx) replayOver(p *partition, aside fsm.Consumer, o *fsm.Outcome) {
	c := p.consumers[aside.Owner]
	c.Replayed++
	p.store(c)
	i := slices.IndexFunc(p.letters, func(l fsm.DeadLetter) bool { return l.ID.Number == aside.Replay })
	if i >= 0 {
		t.dropLetter(p, p.letters[i], o)
	} else {
		t.replayEnds(p, c, o)
	}
}

// Replays returns the numbers in the replay queues, by consumer.
func (db *DB) Replays() (replays map[string][]int64) {
	db.edit(func(t *tx) {
		replays = map[string][]int64{}
		for _, p := range t.partitions {
			for id, queue := range p.replays {
				for _, q := range queue {
					replays[id] = append(replays[id], q.number)
				}
			}
		}
	})
	return replays
}
