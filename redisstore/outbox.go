package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
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
	r.list(func(l *reply) {
		k.ID = l.text()
		text := l.text()
		k.New, k.Asked = l.yes(), map[string]string{}
		if l.bad == nil && json.Unmarshal([]byte(text), &k.Asked) != nil {
			l.fail("what was asked for that is no JSON")
		}
	})
	return k, r.err()
}

// KeepKey implements control.OutboxStore.
func (s *Store) KeepKey(ctx context.Context, key, id string) error {
	r := s.run(ctx, scriptKeepKey, s.keys.partitionOf(key), key, id)
	if !r.yes() && r.bad == nil {
		return fmt.Errorf("%w: an idempotency key is lost", fsm.ErrUnavailable)
	}
	return r.err()
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
	r := s.run(ctx, scriptAcceptEvent, s.PartitionOf(stream), e.ID, text, stream, consumer)
	return r.yes(), r.err()
}

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
	took := s.run(ctx, scriptTakeEvent, s.PartitionOf(r.Consumer.Home), r.Consumer.ID, r.Epoch, r.WakeID, r.Handed,
		e.ID, text, r.Consumer.Home, e.CreatedAt, flag(replay))
	return took.yes(), took.err()
}

// OutboxEvent implements control.OutboxStore.
func (s *Store) OutboxEvent(
	ctx context.Context, id string,
) (record fsm.OutboxRecord, state fsm.OutboxState, err error) {
	partition, err := fsm.OutboxPartition(id, s.keys.partitions)
	if err != nil {
		return record, state, fsm.ErrNotFound
	}
	found := false
	r := s.run(ctx, scriptReadEvent, partition, id)
	r.list(func(l *reply) {
		if found = len(l.items) > 0; !found {
			return
		}
		text := l.text()
		if l.bad == nil && json.Unmarshal([]byte(text), &record.Event) != nil {
			l.fail("an event that is no JSON")
		}
		record.Stream, record.Status = l.text(), word(l, fsm.OutboxStatuses)
		record.Attempts, record.Consumer, record.Place = int(l.int()), l.text(), l.text()
		record.LastAttemptAt, record.DeliveredAt = moment(l.int()), moment(l.int())
		record.LastError, record.LastStatus = l.text(), int(l.int())
		by := fsm.OutboxBearer{State: word(l, bearerStates), Sent: l.yes(), Attempt: int(l.int())}
		by.Deadline, by.Place = moment(l.int()), l.text()
		state = record.State(by)
	})
	if r.bad == nil && !found {
		return record, state, fsm.ErrNotFound
	}
	return record, state, r.err()
}
