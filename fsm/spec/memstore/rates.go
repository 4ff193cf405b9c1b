package memstore

import (
	"context"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// TakeTurns implements dispatcher.Store.
func (s *Store) TakeTurns(ctx context.Context, limits []fsm.Limit, most int) (turns fsm.Turns, err error) {
	err = s.call(ctx, func(t *tx) error {
		paces := make([]spec.Pace, len(limits))
		for i, l := range limits {
			paces[i] = t.paces[l.Name]
		}
		paces, turns = spec.TakeTurns(paces, t.now(), limits, most)
		for i, l := range limits {
			t.paces[l.Name] = paces[i]
		}
		return nil
	}, "TakeTurns", limits, most)
	return turns, err
}
