package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"reveille/fsm"
)

// PutLogged adds entries to the delivery log of a subscription, and gives each an ID.
func (db *DB) PutLogged(sub fsm.Subscription, entries ...fsm.LoggedAttempt) {
	db.edit(func(t *tx) {
		log := slices.Clone(t.logs[sub.Generation])
		for _, a := range entries {
			a.ID, a.Subscription = fmt.Sprintf("%d-%d", a.At.UnixMilli(), len(log)), sub.ID
			log = append(log, a)
		}
		t.logs[sub.Generation] = log
	})
}

// LatestLogs implements control.Store.
func (s *Store) LatestLogs(ctx context.Context, since time.Time, most int) (ids []string, next int64, err error) {
	err = s.do(ctx, func(t *tx) {
		latest := map[string]int64{}
		for _, sub := range t.subs {
			if log := t.logs[sub.Generation]; len(log) > 0 {
				at := fsm.LogMillis(log[len(log)-1].ID)
				if since.IsZero() || at >= since.UnixMilli() {
					ids, latest[sub.ID] = append(ids, sub.ID), at
				}
			}
		}
		slices.SortFunc(ids, func(a, b string) int {
			return cmp.Or(cmp.Compare(latest[b], latest[a]), cmp.Compare(b, a))
		})
		if len(ids) > most {
			ids, next = ids[:most], latest[ids[most]]
		}
	}, "LatestLogs", since, most)
	return ids, next, err
}

// LoggedAttempts implements control.Store.
func (s *Store) LoggedAttempts(
	ctx context.Context, places []fsm.LogPlace, most int,
) (lists [][]fsm.LoggedAttempt, err error) {
	err = s.do(ctx, func(t *tx) {
		for _, p := range places {
			log := t.logs[p.Subscription.Generation]
			if i := slices.IndexFunc(log, func(a fsm.LoggedAttempt) bool {
				return p.Before != "" && fsm.CompareLogIDs(a.ID, p.Before) >= 0
			}); i >= 0 {
				log = log[:i]
			}
			list := slices.DeleteFunc(slices.Clone(log[max(0, len(log)-most):]), func(a fsm.LoggedAttempt) bool {
				return fsm.LogMillis(a.ID) < p.Since.UnixMilli()
			})
			slices.Reverse(list)
			lists = append(lists, list)
		}
	}, "LoggedAttempts", places, most)
	return lists, err
}
