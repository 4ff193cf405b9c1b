package memstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// Due implements dispatcher.DeliveryStore.
func (s *Store) Due(ctx context.Context, partition, limit int) (o fsm.Outcome, n int, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.partitions[partition]
		var due []fsm.Consumer
		for _, c := range p.consumers {
			if !c.Deadline.IsZero() && !c.Deadline.After(t.now()) {
				due = append(due, c)
			}
		}
		slices.SortFunc(due, func(a, b fsm.Consumer) int {
			return cmp.Or(a.Deadline.Compare(b.Deadline), strings.Compare(a.ID, b.ID))
		})
		due = due[:min(len(due), limit)]
		n = len(due)
		for _, c := range due {
			env := t.env(p, c.ID)
			if c.IsAside() {
				env.Away = !p.consumers[c.Owner].HiddenAt.IsZero()
			}
			c, e := spec.Due(c, env)
			t.put(p, c, e, &o)
		}
	}, "Due", partition, limit)
	return o, n, err
}

// NextDue implements dispatcher.DeliveryStore.
func (s *Store) NextDue(ctx context.Context, partitions []int) (next []time.Duration, err error) {
	err = s.do(ctx, func(t *tx) {
		for _, n := range partitions {
			first := time.Time{}
			for _, c := range t.partitions[n].consumers {
				if !c.Deadline.IsZero() && (first.IsZero() || c.Deadline.Before(first)) {
					first = c.Deadline
				}
			}
			left := time.Duration(-1)
			if !first.IsZero() {
				left = max(0, first.Sub(t.now()))
			}
			next = append(next, left)
		}
	}, "NextDue", partitions)
	return next, err
}

// transit runs a transition of one consumer, unless it is gone.
func (s *Store) transit(
	ctx context.Context, r fsm.DeliveryRef, f func(fsm.Consumer, spec.Env) (fsm.Consumer, spec.Effects),
	method string, args ...any,
) (o fsm.Outcome, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(r.Consumer.Home)
		if c, there := p.consumers[r.Consumer.ID]; there {
			c, e := f(c, t.env(p, c.ID))
			t.put(p, c, e, &o)
		}
	}, method, args...)
	return o, err
}

// Fail implements dispatcher.DeliveryStore.
func (s *Store) Fail(ctx context.Context, r fsm.DeliveryRef, f fsm.Failure) (o fsm.Outcome, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(r.Consumer.Home)
		c, there := p.consumers[r.Consumer.ID]
		if !there || !spec.Out(c, r) {
			return
		}
		raised := p.raisedBy(c, c.Primary, f.Tail)
		f.Tail = raised.Tail
		env := t.env(p, c.ID)
		env.Asides = p.asides(c.Generation)
		env.AsideWakeID = t.env(p, fsm.AsideID(c.ID, c.Epoch)).WakeID
		was := c
		c, e := spec.Fail(c, env, r, f)
		t.put(p, c, e, &o)
		p.note(c.Primary, raised)
		p.eventFailed(was, e, t.now(), f)
	}, "Fail", r, f)
	return o, err
}

// Park implements dispatcher.DeliveryStore.
func (s *Store) Park(
	ctx context.Context, r fsm.DeliveryRef, why fsm.BlockReason, wait time.Duration,
) (fsm.Outcome, error) {
	return s.transit(ctx, r, func(c fsm.Consumer, env spec.Env) (fsm.Consumer, spec.Effects) {
		return spec.Park(c, env, r, why, wait)
	}, "Park", r, why, wait)
}

// Begin implements dispatcher.DeliveryStore.
func (s *Store) Begin(ctx context.Context, r fsm.DeliveryRef, by string) (fsm.Outcome, error) {
	return s.transit(ctx, r, func(c fsm.Consumer, env spec.Env) (fsm.Consumer, spec.Effects) {
		return spec.Begin(c, env, r, by)
	}, "Begin", r, by)
}

// Accept implements dispatcher.DeliveryStore.
func (s *Store) Accept(ctx context.Context, r fsm.DeliveryRef) (fsm.Outcome, error) {
	return s.transit(ctx, r, func(c fsm.Consumer, env spec.Env) (fsm.Consumer, spec.Effects) {
		return spec.Accept(c, env, r)
	}, "Accept", r)
}

// Finish implements dispatcher.DeliveryStore.
func (s *Store) Finish(ctx context.Context, r fsm.DeliveryRef, seen []fsm.StreamTail) (fsm.Outcome, error) {
	return s.transit(ctx, r, func(c fsm.Consumer, env spec.Env) (fsm.Consumer, spec.Effects) {
		return spec.Finish(c, env, r, seen)
	}, "Finish", r, seen)
}

// Deliver implements dispatcher.DeliveryStore.
func (s *Store) Deliver(ctx context.Context, r fsm.DeliveryRef, d fsm.Delivered) (o fsm.Outcome, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(r.Consumer.Home)
		c, there := p.consumers[r.Consumer.ID]
		if !there || !spec.Counts(c, r, d) {
			return
		}
		raised := p.raisedBy(c, d.Path, d.Tail)
		d.Tail = raised.Tail
		was := c
		c, e := spec.Deliver(c, t.env(p, c.ID), r, d)
		t.put(p, c, e, &o)
		if c.Links[d.Path].Acked != was.Links[d.Path].Acked {
			if record, kept := p.events[d.Event]; kept {
				p.put(d.Event, spec.EventOver(record, was, d, t.now()), t.now())
			}
		}
		p.note(d.Path, raised)
		if e.Removed && c.Replay != 0 {
			t.replayOver(p, c, &o)
		}
	}, "Deliver", r, d)
	return o, err
}

// ReleaseHeld implements dispatcher.DeliveryStore.
func (s *Store) ReleaseHeld(
	ctx context.Context, sub fsm.Subscription, ended fsm.BlockReason,
) (o fsm.Outcome, err error) {
	err = s.do(ctx, func(t *tx) {
		t.each(sub, func(p *partition, c fsm.Consumer) {
			t.put(p, spec.ReleaseHeld(c, t.env(p, c.ID), ended), spec.Effects{}, &o)
		})
	}, "ReleaseHeld", sub, ended)
	return o, err
}
