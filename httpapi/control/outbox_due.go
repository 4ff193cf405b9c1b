package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"reveille/fsm"
)

const (
	releaseEvery = time.Second
	// releasedAtATime is how many events one look brings. releasedAtOnce is how many of them are released at the same
	// time, and of how many partitions.
	releasedAtATime = 100
	releasedAtOnce  = 8
	// lostAfter is for how long an event is looked for that is not in its stream.
	lostAfter = 10 * time.Minute
)

// Run releases delayed events, and removes streams that are not used any more, until ctx is done.
func (o *Outbox) Run(ctx context.Context) error {
	var work errgroup.Group
	work.Go(func() error { return every(ctx, releaseEvery, o.Release) })
	work.Go(func() error { return every(ctx, min(removeEvery, max(o.Roll, releaseEvery)), o.removeStreams) })
	return work.Wait()
}

// every does something again and again until ctx is done.
func every(ctx context.Context, span time.Duration, do func(context.Context)) error {
	ticker := time.NewTicker(span)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			do(ctx)
		}
	}
}

// Release puts delayed events of this replica's partitions into their streams again, once their time has come. They are
// delivered from there. What cannot be released now is released by a later call. A call that is cut short may put an
// event into its stream once more; it is delivered once.
func (o *Outbox) Release(ctx context.Context) {
	due, _ := o.Store.DuePartitions(ctx) // the store logs that it is away
	var work errgroup.Group
	work.SetLimit(releasedAtOnce)
	for _, p := range due {
		work.Go(func() error {
			o.releaseIn(ctx, p)
			return nil
		})
	}
	_ = work.Wait()
}

// releaseIn releases events of a partition for a while. The other partitions wait for that.
func (o *Outbox) releaseIn(ctx context.Context, partition int) {
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < releaseEvery; {
		ids, err := o.Store.DueEvents(ctx, partition, releasedAtATime)
		o.notReleased(ctx, err)
		if len(ids) == 0 {
			return
		}
		var work errgroup.Group
		work.SetLimit(releasedAtOnce)
		for _, id := range ids {
			work.Go(func() error {
				short, cancel := context.WithTimeout(ctx, handOverTime)
				defer cancel()
				o.notReleased(ctx, o.release(short, id))
				return nil
			})
		}
		_ = work.Wait()
	}
}

// release releases one event. What waits no more, or is not kept, needs no release.
func (o *Outbox) release(ctx context.Context, id string) error {
	e, err := o.Store.OutboxEvent(ctx, id)
	if errors.Is(err, fsm.ErrNotFound) || err == nil && e.OutboxRecord.Status != fsm.OutboxPending {
		o.isLost(id, nil)
		return o.Store.ReleaseEvent(ctx, id, "")
	}
	if err != nil {
		return err
	}
	event, err := o.delayed(ctx, e.OutboxRecord)
	if o.isLost(id, err) {
		return o.Store.ReleaseEvent(ctx, id, "the stream server did not keep the event")
	}
	if err != nil {
		return err
	}
	text, err := releasedText(event)
	if err != nil { // the stream server has made it longer
		return o.Store.ReleaseEvent(ctx, id, "the event is too large")
	}
	if err := (Writer{o.Server, o.Writes}).Append(ctx, e.Stream, text); err != nil {
		return err
	}
	return o.Store.ReleaseEvent(ctx, id, "")
}

// isLost says whether a delayed event was not found for too long. The argument err is what looking for it has led to.
func (o *Outbox) isLost(id string, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !errors.Is(err, fsm.ErrNotFound) && !errors.Is(err, fsm.ErrNoStream) {
		delete(o.missing, id)
		return false
	}
	now := o.Control.Clock()
	if o.missing == nil {
		o.missing = map[string]time.Time{}
	}
	since, known := o.missing[id]
	if !known {
		o.missing[id], since = now, now
	}
	lost := now.Sub(since) >= lostAfter
	if lost {
		delete(o.missing, id)
	}
	return lost
}

// delayed reads a delayed event from its stream. It is fsm.ErrNotFound if the event does not lie at its place.
func (o *Outbox) delayed(ctx context.Context, r fsm.OutboxRecord) (e fsm.OutboxEvent, err error) {
	b, err := o.Server.ReadBatch(ctx, "outbox "+r.Stream, r.Stream, r.From(), "", 1, 0, nil)
	if err != nil {
		return e, err
	}
	if len(b.Events) == 0 || json.Unmarshal(b.Events[0], &e) != nil || e.ID != r.Event.ID {
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
