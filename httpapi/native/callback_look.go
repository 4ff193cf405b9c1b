package native

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"reveille/fsm"
	"reveille/httpapi/refusal"
)

const (
	// lookLimit is how many streams one callback asks upstream for at a time.
	lookLimit = 16
	// lookTimeout bounds how long a callback asks for the streams that it subscribes to.
	lookTimeout = 5 * time.Second
)

// ask is Head or HeadAnew of Upstream.
type ask = func(ctx context.Context, path string) (fsm.StreamInfo, error)

// look asks upstream for a stream. ok is false if upstream could not be asked.
func (f *Face) look(ctx context.Context, ask ask, path string) (info fsm.StreamInfo, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, f.HeadTimeout)
	defer cancel()
	info, err := ask(ctx, path)
	return info, err == nil
}

// lookAtPrimary notices that a consumer's primary stream was deleted although no source has reported it (webhook spec,
// S7). It then returns CodeConsumerGone. A single "gone" may come from a server that is about to stop, so it asks once
// more. If upstream cannot be asked, the callback proceeds.
//
// Every callback asks, also a claim or a sign of life: each must find the consumer gone once the stream is gone. An
// answer from before this callback does not tell whether the stream was deleted since. A done must also see what is
// pending (L2, L3). An ack reaches beyond the tail that the store knows if the worker has read on.
func (f *Face) lookAtPrimary(ctx context.Context, cb *fsm.Callback) error {
	info, ok := f.look(ctx, f.Upstream.Head, cb.Primary)
	if ok && info.Gone() {
		if info, ok = f.look(ctx, f.Upstream.HeadAnew, cb.Primary); ok && info.Gone() {
			return f.hide(ctx, cb)
		}
	}
	if ok {
		cb.Tails[cb.Primary] = info.Tail
	}
	return nil
}

// hide hides the consumers of a primary stream that is gone, and returns CodeConsumerGone.
func (f *Face) hide(ctx context.Context, cb *fsm.Callback) error {
	out, err := f.Store.Hide(ctx, cb.Primary, fsm.Missing)
	f.Control.Outcomes.Follow(out, fsm.Sighting{}) // an error may have come after some were hidden
	if err != nil {
		return err
	}
	return gone(cb.Consumer.ID)
}

// lookAtSubscribed finds where the streams that a callback subscribes to end: the subscriptions begin there (webhook
// spec, Dynamic Subscribe). If upstream cannot be asked for a stream, its subscription begins at its start, so that no
// event is lost.
func (f *Face) lookAtSubscribed(ctx context.Context, cb *fsm.Callback, req callbackRequest) {
	wanted := map[string]bool{}
	for _, path := range req.linked() {
		wanted[path] = true
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	tails := make([]fsm.Offset, len(req.subscribe))
	var g errgroup.Group
	g.SetLimit(lookLimit)
	for i, path := range req.subscribe {
		if tail, known := cb.Tails[path]; known {
			tails[i] = tail
			continue
		}
		if !wanted[path] {
			continue // unsubscribed from in the same callback
		}
		g.Go(func() error {
			if info, ok := f.look(ctx, f.Upstream.Head, path); ok && info.Exists {
				tails[i] = info.Tail
			}
			return nil
		})
	}
	_ = g.Wait() // no part returns an error
	for i, path := range req.subscribe {
		sub := fsm.Subscribe{Path: path, From: fsm.Start}
		if tails[i] != "" {
			sub.From, cb.Tails[path] = tails[i], tails[i]
		}
		cb.Subscribe = append(cb.Subscribe, sub)
	}
}

// lookAgain asks for a stream's tail because an ack lies beyond the known tail. It returns CodeUnavailable if upstream
// cannot be asked, because the ack may well be right.
func (f *Face) lookAgain(ctx context.Context, cb *fsm.Callback, path string) error {
	info, ok := f.look(ctx, f.Upstream.HeadAnew, path)
	switch {
	case !ok:
		return refusal.New(fsm.CodeUnavailable, "acks: the offset for %q lies beyond the known tail, and the stream "+
			"server cannot be asked now", path)
	case !info.Gone():
		cb.Tails[path] = info.Tail
	case path == cb.Primary:
		return f.hide(ctx, cb)
	}
	return nil
}
