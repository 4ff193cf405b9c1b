package memstore

import (
	"context"
	"fmt"
	"slices"

	"reveille/fsm"
)

// PutLogged adds an entry to the delivery log of a subscription, and gives it an ID.
func (db *DB) PutLogged(sub fsm.Subscription, a fsm.LoggedAttempt) {
	db.edit(func(t *tx) {
		log := t.logs[sub.Generation]
		a.ID = fmt.Sprintf("%d-%d", a.At.UnixMilli(), len(log))
		t.logs[sub.Generation] = append(slices.Clip(log), a)
	})
}

// LoggedAttempts implements control.Store.
func (s *Store) LoggedAttempts(
	ctx context.Context, sub fsm.Subscription, before string, most int,
) (list []fsm.LoggedAttempt, err error) {
	err = s.do(ctx, func(t *tx) {
		log := t.logs[sub.Generation]
		if before != "" {
			log = log[:max(0, slices.IndexFunc(log, func(a fsm.LoggedAttempt) bool { return a.ID == before }))]
		}
		list = slices.Clone(log[max(0, len(log)-most):])
		slices.Reverse(list)
	}, "LoggedAttempts", sub.ID, before, most)
	return list, err
}
