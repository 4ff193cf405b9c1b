package property

import (
	"errors"

	"pgregory.net/rapid"

	"reveille/fsm"
)

// rewind has a consumer of workers read a stream again, mostly from the start. The consumer may have stalled before.
func (h *history) rewind() {
	var all []fsm.Consumer
	for _, c := range h.db.Consumers() {
		if !c.Profile.Lasting { // what is pushed is never rewound
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return
	}
	c := all[h.evenly("consumer", len(all))]
	if rapid.Bool().Draw(h.t, "it has stalled") {
		h.stalls(c)
	}
	sub := fsm.Subscription{ID: c.Subscription, Generation: c.Generation}
	if rapid.IntRange(0, 9).Draw(h.t, "of another") == 0 {
		sub.Generation += "'"
	}
	path, to := h.pick("stream", paths), fsm.Start
	if rapid.IntRange(0, 3).Draw(h.t, "back to an event") == 0 {
		to = h.offset("to")
	}
	from, got, err := h.store.Rewind(h.ctx, sub, c.Ref(), path, to)
	wantFrom, want, wantErr := h.spec.Rewind(h.ctx, sub, c.Ref(), path, to)
	if wantErr == nil {
		delete(h.acked, ackKey(c, path)) // S4 holds again from here
	}
	for _, refused := range []error{fsm.ErrNotFound, fsm.ErrNotBefore} {
		h.same(refused.Error(), errors.Is(err, refused), errors.Is(wantErr, refused))
		if errors.Is(err, refused) {
			err, wantErr = nil, nil
		}
	}
	h.must(err)
	h.must(wantErr)
	h.same("what was acked", from, wantFrom)
	if h.outcome("rewind", got, want); len(want.Deliveries) > 0 {
		h.cameUpon.rewound++
	}
}

// stalls has the wake of a consumer done without an ack.
func (h *history) stalls(c fsm.Consumer) {
	h.call(fsm.Callback{
		Consumer: c.Ref(), Primary: c.Primary, Generation: c.Generation, Epoch: c.Epoch, TokenEpoch: c.Epoch,
		WakeID: c.WakeID, Done: true, MaxStreams: 2, Tails: map[string]fsm.Offset{},
	})
	h.newNonce()
}
