package memstore

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// No idempotency key expires.

// ReserveKey implements control.OutboxStore.
func (s *Store) ReserveKey(ctx context.Context, key string, k fsm.OutboxKey) (fsm.OutboxKey, error) {
	asked := k
	err := s.do(ctx, func(t *tx) {
		k = spec.ReserveKey(t.reserved[key], asked)
		t.reserved[key] = k
	}, "ReserveKey", key, asked)
	return k, err
}

// KeepKey implements control.OutboxStore.
func (s *Store) KeepKey(ctx context.Context, key, id string) error {
	return s.do(ctx, func(*tx) {}, "KeepKey", key, id)
}

// EventOfKey implements control.OutboxStore.
func (s *Store) EventOfKey(ctx context.Context, key string) (id string, err error) {
	err = s.call(ctx, func(t *tx) error {
		if id = t.reserved[key].ID; id == "" {
			return fsm.ErrNotFound
		}
		return nil
	}, "EventOfKey", key)
	return id, err
}

// AcceptEvent implements control.OutboxStore.
func (s *Store) AcceptEvent(
	ctx context.Context, e fsm.OutboxEvent, stream, consumer string,
) (made bool, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(stream)
		p.forgetExpired(e.ID, t.now())
		if _, kept := p.events[e.ID]; kept {
			return
		}
		r := newEvent(e, stream)
		if c, there := p.consumers[consumer]; there {
			r.Consumer, r.Place = c.ID, c.Place()
		}
		p.events[e.ID], made = r, true
	}, "AcceptEvent", e, stream, consumer)
	return made, err
}

// forgetExpired drops an event that was delivered long enough ago.
func (p *partition) forgetExpired(id string, now time.Time) {
	if expired(p.events[id], now) {
		delete(p.events, id)
	}
}

func expired(e fsm.OutboxRecord, now time.Time) bool {
	return !e.DeliveredAt.IsZero() && !e.DeliveredAt.Add(fsm.OutboxRetention).After(now)
}

func newEvent(e fsm.OutboxEvent, stream string) fsm.OutboxRecord {
	e.Payload = ""
	return fsm.OutboxRecord{Event: e, Stream: stream, Status: fsm.OutboxPending}
}

// TakeEvent implements dispatcher.Store.
func (s *Store) TakeEvent(
	ctx context.Context, r fsm.DeliveryRef, e fsm.OutboxEvent, replay bool,
) (deliver bool, err error) {
	err = s.do(ctx, func(t *tx) {
		p := t.home(r.Consumer.Home)
		c, there := p.consumers[r.Consumer.ID]
		if _, gone := p.deleted[c.Generation]; !there || gone || !spec.Out(c, r) {
			return
		}
		p.forgetExpired(e.ID, t.now())
		kept := p.events[e.ID]
		kept, deliver = spec.TakeEvent(
			kept, newEvent(e, r.Consumer.Home), c, p.consumers[kept.Consumer], t.now(), replay)
		if deliver {
			p.events[e.ID] = kept
		}
	}, "TakeEvent", r, e, replay)
	return deliver, err
}

// eventFailed notes that an attempt to send an event has failed, and what has followed from that. The argument was is
// its consumer before.
func (p *partition) eventFailed(was fsm.Consumer, e spec.Effects, now time.Time, f fsm.Failure) {
	by := was.ID
	if e.Aside != nil {
		by = e.Aside.ID
	}
	if record, kept := p.events[f.Event]; kept {
		p.events[f.Event] = spec.EventFailed(record, by, was.Attempt, now, f)
	}
}

// OutboxEvent implements control.OutboxStore.
func (s *Store) OutboxEvent(
	ctx context.Context, id string,
) (record fsm.OutboxRecord, state fsm.OutboxState, err error) {
	err = s.call(ctx, func(t *tx) error {
		for _, p := range t.partitions {
			if kept, there := p.events[id]; there && !expired(kept, t.now()) {
				record = kept
				var by fsm.OutboxBearer
				if c, bears := p.consumers[record.Consumer]; bears {
					by = c.Bearer()
				}
				state = record.State(by)
				return nil
			}
		}
		return fsm.ErrNotFound
	}, "OutboxEvent", id)
	return record, state, err
}

// OutboxEvents returns what is kept of all events, by ID.
func (db *DB) OutboxEvents() map[string]fsm.OutboxRecord {
	all := map[string]fsm.OutboxRecord{}
	db.edit(func(t *tx) {
		for _, p := range t.partitions {
			for id, r := range p.events {
				all[id] = r
			}
		}
	})
	return all
}
