package memstore

import (
	"context"
	"fmt"
	"slices"

	"reveille/fsm"
)

// NoteChange implements control.AuditStore.
func (s *Store) NoteChange(ctx context.Context, c fsm.Change) error {
	return s.do(ctx, func(t *tx) {
		c.ID, c.At = fmt.Sprintf("%d-%d", t.now().UnixMilli(), len(t.changes)), t.now()
		t.changes = append(slices.Clip(t.changes), c)
	}, "NoteChange", c)
}

// Changes implements control.AuditStore.
func (s *Store) Changes(ctx context.Context, before string, most int) (list []fsm.Change, err error) {
	err = s.do(ctx, func(t *tx) {
		for _, c := range slices.Backward(t.changes) {
			if len(list) < most && (before == "" || fsm.CompareLogIDs(c.ID, before) < 0) {
				list = append(list, c)
			}
		}
	}, "Changes", before, most)
	return list, err
}
