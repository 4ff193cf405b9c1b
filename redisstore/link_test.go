package redisstore_test

import (
	"context"
	"time"

	"reveille/fsm"
	"reveille/fsm/memstore"
)

// Link links a stream to one subscription.
func (w *world) Link(
	ctx context.Context, sub fsm.Subscription, path string, acked, tail fsm.Offset,
) (fsm.Outcome, error) {
	return memstore.Link(ctx, w.Store, sub, path, acked, tail)
}

// note puts a stream on record, or on the way to.
func (w *world) note(ctx context.Context, path string, awaited bool) error {
	tail := fsm.Offset("1")
	if awaited {
		tail = ""
	}
	s, err := w.Stream(ctx, path)
	if err != nil {
		return err
	}
	n := fsm.NewStream(path, tail)
	n.Stamp = s.Stamp
	_, _, err = w.NoteStream(ctx, n, time.Minute)
	return err
}
