package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

const (
	releaseEvery = time.Second
	// releasedAtATime is how many events one look brings. releasedAtOnce is how many of them are released at the same
	// time, and of how many partitions.
	releasedAtATime = 100
	releasedAtOnce  = 8
	// mostFailed is after how many events that cannot be released now a look ends.
	mostFailed = 1000
	// lostAfter is for how long a payload is looked for from the DeliverAt on.
	lostAfter = 10 * time.Minute
)

// Run releases delayed events until ctx is done.
func (o *Outbox) Run(ctx context.Context) error {
	ticker := time.NewTicker(releaseEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			o.Release(ctx)
		}
	}
}

// Release puts delayed events of this replica's partitions into their streams again, once their time has come. They are
// delivered from there. What cannot be released now is released by a later call. A call that is cut short may put an
// event into its stream once more; it is delivered once.
func (o *Outbox) Release(ctx context.Context) {
	due, err := o.Store.DuePartitions(ctx)
	o.notReleased(ctx, err)
	var work errgroup.Group
	work.SetLimit(releasedAtOnce)
	for _, p := range due {
		work.Go(func() error {
			o.notReleased(ctx, o.releaseIn(ctx, p))
			return nil
		})
	}
	_ = work.Wait()
}

func (o *Outbox) releaseIn(ctx context.Context, partition int) error {
	for skip := 0; ; {
		ids, err := o.Store.DueEvents(ctx, partition, skip, releasedAtATime)
		if err != nil || len(ids) == 0 {
			return err
		}
		entries, err := o.entries(ctx, partition, ids)
		if err != nil {
			return err
		}
		failed := o.releaseAll(ctx, ids, entries)
		if skip += failed; skip > mostFailed || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// entries returns what is kept of some events of a partition, by ID.
func (o *Outbox) entries(ctx context.Context, partition int, ids []string) (map[string]fsm.OutboxEntry, error) {
	list, _, err := o.Store.OutboxEvents(ctx, partition, ids)
	of := make(map[string]fsm.OutboxEntry, len(list))
	for _, e := range list {
		of[e.Event.ID] = e
	}
	return of, err
}

// releaseAll returns how many events could not be released.
func (o *Outbox) releaseAll(ctx context.Context, ids []string, entries map[string]fsm.OutboxEntry) int {
	var failed atomic.Int64
	var work errgroup.Group
	work.SetLimit(releasedAtOnce)
	for _, id := range ids {
		work.Go(func() error {
			short, cancel := context.WithTimeout(ctx, handOverTime)
			defer cancel()
			if err := o.release(short, id, entries[id]); err != nil {
				failed.Add(1)
				o.notReleased(ctx, err)
			}
			return nil
		})
	}
	_ = work.Wait()
	return int(failed.Load())
}

// release releases one event. What waits no more, or is not kept, needs no release.
func (o *Outbox) release(ctx context.Context, id string, e fsm.OutboxEntry) error {
	if e.OutboxRecord.Status != fsm.OutboxPending {
		return o.Store.ReleaseEvent(ctx, id, "")
	}
	event, err := o.delayed(ctx, e.OutboxRecord)
	if err != nil {
		lost := errors.Is(err, fsm.ErrNotFound) || errors.Is(err, fsm.ErrNoStream)
		if lost && o.Control.Clock().After(e.Event.Begins().Add(lostAfter)) {
			return o.Store.ReleaseEvent(ctx, id, "the stream server did not keep the event")
		}
		return err
	}
	text, err := releasedText(event)
	if errors.As(err, new(*refusal.Error)) { // the stream server has made it longer
		return o.Store.ReleaseEvent(ctx, id, "the event is too large")
	}
	if err == nil {
		err = (Writer{o.Server, o.Writes}).Append(ctx, e.Stream, text)
	}
	if err != nil {
		return err
	}
	return o.Store.ReleaseEvent(ctx, id, "")
}

// delayed reads a delayed event from its stream. It is fsm.ErrNotFound if the event does not lie at its place.
func (o *Outbox) delayed(ctx context.Context, r fsm.OutboxRecord) (e fsm.OutboxEvent, err error) {
	b, err := o.Server.ReadBatch(ctx, "outbox "+r.Stream, r.Stream, r.From(), "", 1, 0, nil)
	if err != nil {
		return e, err
	}
	i := slices.IndexFunc(b.Events, func(text []byte) bool {
		e = fsm.OutboxEvent{}
		return json.Unmarshal(text, &e) == nil && e.ID == r.Event.ID
	})
	if i < 0 {
		return e, fmt.Errorf("%w: the event is not where it was in %s", fsm.ErrNotFound, r.Stream)
	}
	return e, nil
}

func (o *Outbox) notReleased(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		o.unreleased.Log(o.Control.Log, o.Control.Clock()).Warn(
			"events whose time has come cannot be delivered yet", zap.Error(err))
	}
}
