package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"reveille/fsm"
)

const (
	// expireEventsEvery is how often the store looks for events that were delivered long enough ago.
	expireEventsEvery = 10 * time.Second
	// expiredAtATime is how many of them one call returns at most.
	expiredAtATime = 100
)

// bearerStates are those of a consumer that brings an event; empty if it is gone.
var bearerStates = []fsm.State{"", fsm.Idle, fsm.Waking, fsm.Live, fsm.GivenUp}

// An event is kept in the partition of its stream, and an idempotency key in a partition of its own.

// ReserveKey implements control.OutboxStore.
func (s *Store) ReserveKey(ctx context.Context, key string, k fsm.OutboxKey) (fsm.OutboxKey, error) {
	asked, err := json.Marshal(k.Asked)
	if err != nil {
		return k, err
	}
	r := s.run(ctx, scriptReserveKey, s.keys.partitionOf(key), key, k.ID, string(asked),
		fsm.OutboxReserved.Milliseconds())
	k.ID = r.text()
	text := r.text()
	k.New, k.Asked = r.yes(), map[string]string{}
	if r.bad == nil && json.Unmarshal([]byte(text), &k.Asked) != nil {
		r.fail("what was asked for that is no JSON")
	}
	return k, r.err()
}

// KeepKey implements control.OutboxStore.
func (s *Store) KeepKey(ctx context.Context, key, id string) error {
	kept, err := s.keepKey(ctx, key, id)
	if err == nil && !kept {
		err = fmt.Errorf("%w: an idempotency key is lost", fsm.ErrUnavailable)
	}
	return err
}

// keepKey says no if the key is not reserved for that event.
func (s *Store) keepKey(ctx context.Context, key, id string) (kept bool, err error) {
	r := s.run(ctx, scriptKeepKey, s.keys.partitionOf(key), key, id)
	return r.yes(), r.err()
}

// expireEvents drops the events of this replica's partitions that were delivered long enough ago. The key of each goes
// first: what is cut short is done again.
func (s *Store) expireEvents(ctx context.Context) error {
	for _, p := range s.ownership.Partitions() {
		for n := expiredAtATime; n == expiredAtATime; {
			var found []fsm.OutboxEvent
			r := s.run(ctx, scriptExpiredEvents, p, expiredAtATime)
			r.each(func(l *reply) {
				e := fsm.OutboxEvent{ID: l.text()}
				id, text := e.ID, l.text()
				_ = json.Unmarshal([]byte(text), &e) // what cannot be read goes without its key
				e.ID = id
				found = append(found, e)
			})
			if r.bad != nil {
				return r.bad
			}
			for _, e := range found {
				key := s.run(ctx, scriptDropKey, s.keys.partitionOf(e.Key), e.Key, e.ID)
				if key.yes(); key.bad != nil {
					return key.bad
				}
				event := s.run(ctx, scriptDropEvent, p, e.ID)
				if event.yes(); event.bad != nil {
					return event.bad
				}
			}
			n = len(found)
		}
	}
	return nil
}

// EventOfKey implements control.OutboxStore.
func (s *Store) EventOfKey(ctx context.Context, key string) (id string, err error) {
	r := s.run(ctx, scriptKeyOf, s.keys.partitionOf(key), key)
	switch id = r.text(); {
	case r.bad != nil:
	case id == "":
		return "", fsm.ErrNotFound
	default:
		if _, err := fsm.OutboxPartition(id, s.keys.partitions); err != nil {
			r.fail("no id of an event")
		}
	}
	return id, r.err()
}

// AcceptEvent implements control.OutboxStore.
func (s *Store) AcceptEvent(
	ctx context.Context, e fsm.OutboxEvent, stream, consumer string,
) (made bool, err error) {
	text, err := withoutPayload(e)
	if err != nil {
		return false, err
	}
	r := s.run(ctx, scriptAcceptEvent, s.PartitionOf(stream), e.ID, text, placeOf(e), e.Provider,
		e.Retention().Milliseconds(), e.DeliverAt, stream, consumer)
	code := r.code(-1, 0, 1)
	if code < 0 && r.bad == nil {
		return false, errRemoving(stream)
	}
	return code == 1, r.err()
}

func placeOf(e fsm.OutboxEvent) string { return string(fsm.OutboxPlaceOf(e.CreatedAt, e.ID)) }

func withoutPayload(e fsm.OutboxEvent) (string, error) {
	e.Payload = ""
	text, err := json.Marshal(e)
	return string(text), err
}

// TakeEvent implements dispatcher.Store.
func (s *Store) TakeEvent(
	ctx context.Context, r fsm.DeliveryRef, e fsm.OutboxEvent, replay bool,
) (deliver bool, err error) {
	text, err := withoutPayload(e)
	if err != nil {
		return false, err
	}
	take := func(keyKept bool) *reply {
		return s.run(ctx, scriptTakeEvent, s.PartitionOf(r.Consumer.Home), r.Consumer.ID, r.Epoch, r.WakeID, r.Handed,
			e.ID, text, placeOf(e), e.Provider, e.Retention().Milliseconds(), e.DeliverAt, r.Consumer.Home,
			flag(replay), flag(e.Released), flag(keyKept))
	}
	took := take(e.Key == "")
	code := took.code(-1, 0, 1)
	if code < 0 && took.bad == nil { // the hand-over was cut short, and its client may know of no event
		if _, err := s.keepKey(ctx, e.Key, e.ID); err != nil { // a lost key keeps no event back
			return false, err
		}
		took = take(true)
		code = took.code(0, 1)
	}
	return code == 1, took.err()
}

// CancelEvent implements control.OutboxStore.
func (s *Store) CancelEvent(ctx context.Context, id string) (cancelled bool, err error) {
	partition, err := fsm.OutboxPartition(id, s.keys.partitions)
	if err != nil {
		return false, nil
	}
	r := s.run(ctx, scriptCancelEvent, partition, id)
	return r.yes(), r.err()
}

// ListEvents implements control.OutboxStore.
func (s *Store) ListEvents(
	ctx context.Context, span fsm.OutboxSpan, most int,
) (places []fsm.OutboxPlace, err error) {
	args := []any{string(span.Before), fmt.Sprintf("%013d", span.Since), most}
	for _, list := range span.Lists {
		args = append(args, string(list))
	}
	r := s.run(ctx, scriptListEvents, span.Partition, args...)
	r.each(func(l *reply) { places = append(places, fsm.OutboxPlace(l.text())) })
	slices.Sort(places)
	slices.Reverse(places)
	return places[:min(len(places), most)], r.err()
}

// OutboxEvent implements control.OutboxStore.
func (s *Store) OutboxEvent(ctx context.Context, id string) (e fsm.OutboxEntry, err error) {
	partition, err := fsm.OutboxPartition(id, s.keys.partitions)
	if err != nil {
		return e, fsm.ErrNotFound
	}
	list, err := s.OutboxEvents(ctx, partition, []string{id})
	if err == nil && len(list) == 0 {
		err = fsm.ErrNotFound
	}
	if err != nil {
		return e, err
	}
	return list[0], nil
}

// OutboxEvents implements control.OutboxStore.
func (s *Store) OutboxEvents(ctx context.Context, partition int, ids []string) ([]fsm.OutboxEntry, error) {
	list, _, err := s.readEvents(ctx, partition, "", ids)
	return list, err
}

// Room implements control.OutboxStore.
func (s *Store) Room(ctx context.Context, stream, id string) (e *fsm.OutboxEntry, room fsm.OutboxRoom, err error) {
	list, room, err := s.readEvents(ctx, s.PartitionOf(stream), stream, []string{id})
	if len(list) > 0 {
		e = &list[0]
	}
	return e, room, err
}

func (s *Store) readEvents(
	ctx context.Context, partition int, stream string, ids []string,
) (list []fsm.OutboxEntry, room fsm.OutboxRoom, err error) {
	args := []any{stream}
	for _, id := range ids {
		args = append(args, id)
	}
	r := s.run(ctx, scriptReadEvents, partition, args...)
	r.list(func(l *reply) {
		room.Open, room.Dead, room.Removing = l.int(), l.int(), l.yes()
		for len(l.items) > 0 && l.bad == nil {
			l.list(func(l *reply) {
				if len(l.items) > 0 {
					list = append(list, l.outboxEntry())
				}
			})
		}
	})
	return list, room, r.err()
}

// outboxEntry reads what lua/read_events.lua returns of an event.
func (r *reply) outboxEntry() (e fsm.OutboxEntry) {
	text := r.text()
	if r.bad == nil && json.Unmarshal([]byte(text), &e.Event) != nil {
		r.fail("an event that is no JSON")
	}
	e.Stream, e.OutboxRecord.Status = r.text(), word(r, fsm.OutboxStatuses)
	e.OutboxRecord.Attempts, e.Consumer, e.Place = int(r.int()), r.text(), r.text()
	e.LastAttemptAt, e.DeliveredAt = moment(r.int()), moment(r.int())
	e.LastError, e.LastStatus, e.Tries = r.text(), int(r.int()), r.tries()
	e.DelayedUntil, e.ExpiresAt = moment(r.int()), moment(r.int())
	by := fsm.OutboxBearer{State: word(r, bearerStates), Sent: r.yes(), Attempt: int(r.int())}
	by.Deadline, by.Place = moment(r.int()), r.text()
	e.OutboxState = e.State(by)
	return e
}

// tries reads the attempts to deliver an event, a line each (lua/library/keys.lua).
func (r *reply) tries() (tries []fsm.OutboxTry) {
	for line := range strings.Lines(r.text()) {
		at, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		code, why, both := strings.Cut(rest, " ")
		millis, err := strconv.ParseInt(at, 10, 64)
		status, failed := strconv.Atoi(code)
		if err != nil || failed != nil || !both {
			r.fail("an attempt that cannot be read")
			return nil
		}
		tries = append(tries, fsm.OutboxTry{At: moment(millis), Status: status, Error: why})
	}
	return tries
}
