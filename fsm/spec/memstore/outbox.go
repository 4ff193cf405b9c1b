package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
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
	removing := false
	err = s.do(ctx, func(t *tx) {
		p := t.home(stream)
		p.forgetExpired(e.ID, t.now())
		if kept := p.events[e.ID].Status; kept != "" && kept != fsm.OutboxExpired {
			return
		}
		if removing = !p.eventStreams[stream].IsZero(); removing {
			return
		}
		r := newEvent(e, stream)
		if c, there := p.consumers[consumer]; there {
			r.Consumer, r.Place = c.ID, c.Place()
		}
		p.put(e.ID, r, t.now())
		made = true
	}, "AcceptEvent", e, stream, consumer)
	if err == nil && removing {
		err = fmt.Errorf("%w: the stream %s is being removed", fsm.ErrUnavailable, stream)
	}
	return made, err
}

// put stores an event, and counts what has become of it. What is left of an expired one does not change.
func (p *partition) put(id string, e fsm.OutboxRecord, now time.Time) {
	if e.Status == fsm.OutboxExpired {
		return
	}
	hour := fsm.OutboxHour{Hour: fsm.OutboxHourOf(now), Provider: e.Event.Provider}
	tally := p.hours[hour]
	tally.Times = maps.Clone(tally.Times)
	if tally.Add(spec.CountEvent(p.events[id], e, now)); !reflect.DeepEqual(tally, fsm.OutboxTally{}) {
		p.hours[hour] = tally
	}
	p.events[id] = e
	if _, there := p.eventStreams[e.Stream]; !there {
		p.eventStreams[e.Stream] = time.Time{}
	}
}

// forgetExpired drops an event that was delivered or cancelled long enough ago.
func (p *partition) forgetExpired(id string, now time.Time) {
	if !expired(p.events[id], now) {
		return
	}
	left, keep := spec.ExpireEvent(p.events[id], now)
	if p.events[id] = left; !keep {
		delete(p.events, id)
	}
}

func expired(e fsm.OutboxRecord, now time.Time) bool {
	return !e.ExpiresAt.IsZero() && !e.ExpiresAt.After(now)
}

// isKept says whether there is such an event.
func isKept(e fsm.OutboxRecord, now time.Time) bool {
	return e.Status != "" && e.Status != fsm.OutboxExpired && !expired(e, now)
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
		if !p.eventStreams[r.Consumer.Home].IsZero() && (kept.Status == "" || kept.Status == fsm.OutboxExpired) {
			return
		}
		kept, deliver = spec.TakeEvent(
			kept, newEvent(e, r.Consumer.Home), c, p.consumers[kept.Consumer], t.now(), replay)
		if deliver || !kept.DelayedUntil.IsZero() {
			p.put(e.ID, kept, t.now())
		}
	}, "TakeEvent", r, e, replay)
	return deliver, err
}

// DuePartitions implements control.OutboxStore.
func (s *Store) DuePartitions(context.Context) ([]int, error) {
	return fsm.AllPartitions(s.Partitions()), nil
}

// DueEvents implements control.OutboxStore.
func (s *Store) DueEvents(ctx context.Context, partition, most int) (ids []string, err error) {
	err = s.do(ctx, func(t *tx) {
		events := t.partitions[partition].events
		for id, e := range events {
			if !e.DelayedUntil.IsZero() && !e.DelayedUntil.After(t.now()) {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b string) int {
			return cmp.Or(events[a].DelayedUntil.Compare(events[b].DelayedUntil), cmp.Compare(a, b))
		})
		ids = ids[:min(most, len(ids))]
		for _, id := range ids {
			events[id] = spec.PutOff(events[id], t.now())
		}
	}, "DueEvents", partition)
	return ids, err
}

// ReleaseEvent implements control.OutboxStore.
func (s *Store) ReleaseEvent(ctx context.Context, id, lost string) error {
	return s.do(ctx, func(t *tx) {
		for _, p := range t.partitions {
			if kept, there := p.events[id]; there {
				p.put(id, spec.ReleaseEvent(kept, lost), t.now())
			}
		}
	}, "ReleaseEvent", id, lost)
}

// eventFailed notes that an attempt to send an event has failed, and what has followed from that. The argument was is
// its consumer before.
func (p *partition) eventFailed(was fsm.Consumer, e spec.Effects, now time.Time, f fsm.Failure) {
	by := was.ID
	if e.Aside != nil {
		by = e.Aside.ID
	}
	if record, kept := p.events[f.Event]; kept {
		p.put(f.Event, spec.EventFailed(record, by, was.Attempt, now, f), now)
	}
}

// CancelEvent implements control.OutboxStore.
func (s *Store) CancelEvent(ctx context.Context, id string) (cancelled bool, err error) {
	err = s.do(ctx, func(t *tx) {
		for _, p := range t.partitions {
			p.forgetExpired(id, t.now())
			if kept := p.events[id]; isKept(kept, t.now()) {
				kept, cancelled = spec.CancelEvent(kept, p.bearerOf(kept), t.now())
				p.put(id, kept, t.now())
			}
		}
	}, "CancelEvent", id)
	return cancelled, err
}

// eventOf returns an event that is not expired, and its partition; nil if there is no such event.
func (t *tx) eventOf(id string) (*partition, fsm.OutboxRecord) {
	for _, p := range t.partitions {
		if kept := p.events[id]; isKept(kept, t.now()) {
			return p, kept
		}
	}
	return nil, fsm.OutboxRecord{}
}

// bearerOf returns the consumer that brings an event; it is empty if it is gone.
func (p *partition) bearerOf(e fsm.OutboxRecord) (by fsm.OutboxBearer) {
	if c, bears := p.consumers[e.Consumer]; bears {
		by = c.Bearer()
	}
	return by
}

// OutboxEvent implements control.OutboxStore.
func (s *Store) OutboxEvent(ctx context.Context, id string) (e fsm.OutboxEntry, err error) {
	err = s.call(ctx, func(t *tx) error {
		p, kept := t.eventOf(id)
		if p == nil {
			return fsm.ErrNotFound
		}
		e = entryOf(p, kept)
		return nil
	}, "OutboxEvent", id)
	return e, err
}

// OutboxEvents implements control.OutboxStore.
func (s *Store) OutboxEvents(ctx context.Context, partition int, ids []string) (list []fsm.OutboxEntry, err error) {
	err = s.call(ctx, func(t *tx) error {
		for _, id := range ids {
			if p, kept := t.eventOf(id); p != nil {
				list = append(list, entryOf(p, kept))
			}
		}
		return nil
	}, "OutboxEvents", partition, ids)
	return list, err
}

// Room implements control.OutboxStore.
func (s *Store) Room(
	ctx context.Context, stream, id string,
) (e *fsm.OutboxEntry, room fsm.OutboxRoom, err error) {
	err = s.call(ctx, func(t *tx) error {
		home := t.home(stream)
		room.Dead, room.Removing = t.crowd, !home.eventStreams[stream].IsZero()
		for _, e := range home.events {
			switch {
			case e.Status == fsm.OutboxDead:
				room.Dead++
			case !e.Status.Over() && e.Status != fsm.OutboxExpired:
				room.Open++
			}
		}
		if p, kept := t.eventOf(id); p != nil {
			entry := entryOf(p, kept)
			e = &entry
		}
		return nil
	}, "Room", stream, id)
	return e, room, err
}

func entryOf(p *partition, kept fsm.OutboxRecord) fsm.OutboxEntry {
	return fsm.OutboxEntry{OutboxRecord: kept, OutboxState: kept.State(p.bearerOf(kept))}
}

// ListEvents implements control.OutboxStore.
func (s *Store) ListEvents(
	ctx context.Context, span fsm.OutboxSpan, most int,
) (places []fsm.OutboxPlace, err error) {
	err = s.call(ctx, func(t *tx) error {
		for id, e := range t.partitions[span.Partition].events {
			place := fsm.OutboxPlaceOf(e.Event.CreatedAt, id)
			if e.Event.CreatedAt >= span.Since && (span.Before == "" || place < span.Before) &&
				e.Status != fsm.OutboxExpired && slices.Contains(span.Lists, listOf(e.Status)) {
				places = append(places, place)
			}
		}
		return nil
	}, "ListEvents", span)
	slices.Sort(places)
	slices.Reverse(places)
	return places[:min(len(places), most)], err
}

// CountEvents implements control.OutboxStore.
func (s *Store) CountEvents(ctx context.Context, partition int) (all fsm.OutboxCount, err error) {
	all.Statuses = map[fsm.OutboxStatus]int64{}
	for _, status := range fsm.OutboxStatuses {
		all.Statuses[status] = 0
	}
	err = s.call(ctx, func(t *tx) error {
		p := t.partitions[partition]
		for _, e := range p.events {
			if !isKept(e, t.now()) {
				continue
			}
			status, since := e.State(p.bearerOf(e)).Status, e.Event.Begins()
			all.Statuses[status]++
			waits := !status.Over() && e.Event.DeliverAt <= t.now().UnixMilli()
			if waits && (all.WaitingSince.IsZero() || since.Before(all.WaitingSince)) {
				all.WaitingSince = since
			}
		}
		return nil
	}, "CountEvents", partition)
	return all, err
}

// OutboxHours implements control.OutboxStore.
func (s *Store) OutboxHours(
	ctx context.Context, partition int, first, last int64,
) (hours map[fsm.OutboxHour]fsm.OutboxTally, err error) {
	err = s.call(ctx, func(t *tx) error {
		hours = maps.Clone(t.partitions[partition].hours)
		maps.DeleteFunc(hours, func(h fsm.OutboxHour, _ fsm.OutboxTally) bool {
			return h.Hour < first || h.Hour > last
		})
		return nil
	}, "OutboxHours", partition)
	return hours, err
}

func listOf(s fsm.OutboxStatus) fsm.OutboxList {
	if s.Over() {
		return fsm.OutboxList(s)
	}
	return fsm.OutboxOpen
}

// Crowd has so many further events seem to be dead in each partition.
func (db *DB) Crowd(dead int64) {
	db.edit(func(t *tx) { t.crowd = dead })
}

// PutEvent has the store keep an event.
func (db *DB) PutEvent(r fsm.OutboxRecord) {
	db.edit(func(t *tx) { t.home(r.Stream).put(r.Event.ID, r, t.now()) })
}

// AllEvents returns what is kept of all events, by ID.
func (db *DB) AllEvents() map[string]fsm.OutboxRecord {
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

// OutboxConfig implements control.OutboxStore.
func (s *Store) OutboxConfig(ctx context.Context) (c fsm.OutboxConfig, err error) {
	err = s.call(ctx, func(t *tx) error {
		c = t.outbox
		return nil
	}, "OutboxConfig")
	return c, err
}

// ChangeOutboxConfig implements control.OutboxStore.
func (s *Store) ChangeOutboxConfig(
	ctx context.Context, change func(fsm.OutboxConfig) (fsm.OutboxConfig, error),
) (was, is fsm.OutboxConfig, err error) {
	err = s.call(ctx, func(t *tx) (err error) {
		was = t.outbox
		if is, err = change(was); err == nil {
			t.outbox = is
			t.relist()
		}
		return err
	}, "ChangeOutboxConfig")
	return was, is, err
}
