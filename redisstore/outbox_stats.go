package redisstore

import (
	"context"
	"strconv"
	"strings"

	"reveille/fsm"
)

// countedAtATime is how many events one call counts.
const countedAtATime = 1000

// CountEvents implements control.OutboxStore.
func (s *Store) CountEvents(ctx context.Context, partition int) (fsm.OutboxCount, error) {
	all := fsm.OutboxCount{Statuses: map[fsm.OutboxStatus]int64{}}
	for at := ""; ; {
		r := s.run(ctx, scriptCountEvents, partition, at, countedAtATime)
		at = r.text()
		since := moment(r.int())
		if !since.IsZero() && (all.WaitingSince.IsZero() || since.Before(all.WaitingSince)) {
			all.WaitingSince = since
		}
		for _, status := range []fsm.OutboxStatus{
			fsm.OutboxPending, fsm.OutboxDelivering, fsm.OutboxRetrying, fsm.OutboxDelivered, fsm.OutboxDead,
			fsm.OutboxCancelled,
		} {
			all.Statuses[status] += r.int()
		}
		if r.bad != nil || at == "" {
			return all, r.err()
		}
	}
}

// OutboxHours implements control.OutboxStore.
func (s *Store) OutboxHours(
	ctx context.Context, partition int, first, last int64,
) (hours map[fsm.OutboxHour]fsm.OutboxTally, err error) {
	hours = map[fsm.OutboxHour]fsm.OutboxTally{}
	r := s.run(ctx, scriptCountHours, partition, first, last)
	r.each(func(l *reply) {
		hour := l.int()
		l.each(func(l *reply) {
			what, provider, _ := strings.Cut(l.text(), " ")
			of := fsm.OutboxHour{Hour: hour, Provider: provider}
			tally := hours[of]
			l.count(&tally, what)
			hours[of] = tally
		})
	})
	return hours, r.err()
}

// count reads a number of a tally.
func (r *reply) count(t *fsm.OutboxTally, what string) {
	n := r.int()
	switch what {
	case "handed_over":
		t.HandedOver += n
	case string(fsm.OutboxDelivered):
		t.Delivered += n
	case string(fsm.OutboxDead):
		t.Dead += n
	case string(fsm.OutboxCancelled):
		t.Cancelled += n
	default:
		bucket, err := strconv.Atoi(strings.TrimPrefix(what, "t"))
		if err != nil {
			r.fail("an unknown number of an hour")
			return
		}
		t.Add(fsm.OutboxTally{Times: fsm.Times{bucket: n}})
	}
}
