package spec

import (
	"slices"

	"reveille/fsm"
)

// CallbackResult is the result of a callback. A refused callback has no effect.
type CallbackResult struct {
	// Code is empty if the callback succeeded.
	Code fsm.Code
	// Path is the stream whose ack lies beyond the tail, with CodeInvalidOffset. It is empty with CodeInvalidRequest,
	// which means that MaxStreams would be exceeded.
	Path string
	// Streams are the subscribed streams with their acked offsets, ordered as in Wake.
	Streams []fsm.StreamTail
	// WakeID is the WakeID of the callback's wake, if the callback's epoch is the current one; otherwise it is empty.
	WakeID string
	Effects
}

// Callback judges and processes a callback. exists is false if the store has no such consumer. The order of the checks
// is fixed, and the first failure answers. The order of processing is claim, acks, subscribe, unsubscribe, done.
func Callback(c fsm.Consumer, env Env, exists bool, cb fsm.Callback) (fsm.Consumer, CallbackResult) {
	wakeID := ""
	refuse := func(code fsm.Code, path string) (fsm.Consumer, CallbackResult) {
		return c, CallbackResult{Code: code, Path: path, WakeID: wakeID}
	}
	// No worker has a token for an aside, or for a consumer that was never woken. Such a callback comes from the worker
	// of an earlier consumer with the same ID.
	if !exists || c.IsAside() || c.Generation != cb.Generation || !c.HiddenAt.IsZero() || c.WakeID == "" ||
		c.State == fsm.GivenUp {
		return refuse(fsm.CodeConsumerGone, "")
	}
	if cb.TokenExpired {
		return refuse(fsm.CodeTokenExpired, "")
	}
	if cb.Epoch != c.Epoch || cb.TokenEpoch != c.Epoch {
		return refuse(fsm.CodeStaleEpoch, "")
	}
	wakeID = c.WakeID
	if cb.WakeID != "" && cb.WakeID != c.WakeID {
		return refuse(fsm.CodeAlreadyClaimed, "")
	}
	before := c
	c = clone(c)
	for path, tail := range cb.Tails {
		note(&c, path, tail)
	}
	for _, a := range cb.Acks {
		if l, ok := c.Links[a.Path]; ok && moves(l, a.Offset) && a.Offset.After(l.Tail) {
			c = before
			return refuse(fsm.CodeInvalidOffset, a.Path)
		}
	}
	links := len(c.Links)
	for i, s := range cb.Subscribe {
		if _, ok := c.Links[s.Path]; !ok &&
			!slices.ContainsFunc(cb.Subscribe[:i], func(o fsm.Subscribe) bool { return o.Path == s.Path }) {
			links++
		}
	}
	if links > cb.MaxStreams && links > len(c.Links) {
		c = before
		return refuse(fsm.CodeInvalidRequest, "")
	}

	if cb.WakeID != "" && c.State == fsm.Waking {
		goLive(&c, env)
		delivered(&c)
	} else if c.State == fsm.Live {
		goLive(&c, env)
	}
	for _, a := range cb.Acks {
		ack(&c, a.Path, a.Offset)
	}
	for _, s := range cb.Subscribe {
		if _, ok := c.Links[s.Path]; !ok {
			c.Links[s.Path] = fsm.Link{Acked: s.From, Tail: cb.Tails[s.Path]}
		}
	}
	for _, p := range cb.Unsubscribe {
		delete(c.Links, p)
	}
	if len(c.Links) == 0 {
		return c, CallbackResult{WakeID: wakeID, Effects: Remove(c, fsm.RemovedUnsubscribed)}
	}
	res := CallbackResult{Streams: deliveryNow(c).Streams, WakeID: wakeID}
	switch {
	case c.State == fsm.Idle:
		res.Delivery = wakeIfPending(&c, env)
	case cb.Done:
		res.Ended = ended(c, fsm.EndDone)
		res.Delivery, res.Idled = rest(&c, env), true
	}
	return c, res
}
