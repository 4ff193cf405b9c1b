package dispatcher

import (
	"context"

	"reveille/fsm"
)

// kind is how the modes of subscriptions differ, apart from the formats of their requests.
type kind struct {
	// spares is true if all deliveries of a subscription leave an endpoint that is down alone (endpoint.go). In
	// ModeWake, each consumer follows the schedule of the webhook spec, and only a Retry-After holds for all.
	spares bool
	// load is the last step of prepare: it names the delivery, and finds what the delivery brings.
	load step
	// reads is true if the body of a 2xx says whether the work is done.
	reads bool
	// size is about how much memory a delivery needs on top of its wake, in bytes.
	size int
	// ack tells the store that nothing of the delivery is left to do.
	ack func(context.Context, *attempt) (fsm.Outcome, error)
}

func (d *Dispatcher) newKinds() map[fsm.Mode]kind {
	return map[fsm.Mode]kind{
		fsm.ModeWake: {load: d.mint, reads: true, ack: d.finish},
		fsm.ModePush: {spares: true, load: d.read, size: pushSize, ack: d.advance},
	}
}

// mint names the delivery of a wake and makes its token.
func (d *Dispatcher) mint(_ context.Context, a *attempt) bool {
	w := a.delivery
	a.content.ID = w.WakeID
	a.content.Token = d.cfg.Tokens.Mint(w.Consumer, w.Generation, w.Epoch, d.cfg.Clock())
	return true
}

// finish acks what the worker of a wake could have seen (D1).
func (d *Dispatcher) finish(ctx context.Context, a *attempt) (fsm.Outcome, error) {
	return d.cfg.Store.Finish(ctx, a.delivery.Ref(), a.delivery.Streams)
}
