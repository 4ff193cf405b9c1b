package fsm

import "slices"

// Ack is one acknowledged offset of a callback.
type Ack struct {
	Path   string
	Offset Offset
}

// Subscribe is one stream that a callback subscribes to. From is the offset that counts as acknowledged: the stream's
// present tail, or Start if the stream does not exist yet (webhook spec, Dynamic Subscribe).
type Subscribe struct {
	Path string
	From Offset
}

// Callback is a callback with a well-formed token and body (webhook spec, Callback API).
type Callback struct {
	// Consumer is the consumer that the token and the URL name. Primary is its primary stream.
	Consumer ConsumerRef
	Primary  string
	// Generation and TokenEpoch are the token's; TokenExpired is true if the token has expired.
	Generation   string
	TokenEpoch   int64
	TokenExpired bool

	Epoch int64
	// WakeID is empty if the callback does not claim.
	WakeID      string
	Acks        []Ack
	Subscribe   []Subscribe
	Unsubscribe []string
	Done        bool

	// Tails are the tails that upstream reported because of this callback.
	Tails map[string]Offset
	// MaxStreams bounds how many streams one consumer may be subscribed to.
	MaxStreams int
}

// CallbackResult is the result of a callback. A refused callback has no effect.
type CallbackResult struct {
	// Code is empty if the callback succeeded.
	Code Code
	// Path is the stream whose ack lies beyond the tail, with CodeInvalidOffset. It is empty with CodeInvalidRequest,
	// which means that MaxStreams would be exceeded.
	Path string
	// Streams are the subscribed streams with their acked offsets, ordered as in Wake.
	Streams []StreamTail
	// WakeID is the WakeID of the callback's wake, if the callback's epoch is the current one; otherwise it is empty.
	WakeID string
	Effects
}

// Callback judges and processes a callback. exists is false if the store has no such consumer. The order of the checks
// is fixed, and the first failure answers. The order of processing is claim, acks, subscribe, unsubscribe, done.
func (c Consumer) Callback(env Env, exists bool, cb Callback) (Consumer, CallbackResult) {
	wakeID := ""
	refuse := func(code Code, path string) (Consumer, CallbackResult) {
		return c, CallbackResult{Code: code, Path: path, WakeID: wakeID}
	}
	// No worker has a token for an aside, or for a consumer that was never woken. Such a callback comes from the worker
	// of an earlier consumer with the same ID.
	if !exists || c.IsAside() || c.Generation != cb.Generation || !c.HiddenAt.IsZero() || c.WakeID == "" ||
		c.State == GivenUp {
		return refuse(CodeConsumerGone, "")
	}
	if cb.TokenExpired {
		return refuse(CodeTokenExpired, "")
	}
	if cb.Epoch != c.Epoch || cb.TokenEpoch != c.Epoch {
		return refuse(CodeStaleEpoch, "")
	}
	wakeID = c.WakeID
	if cb.WakeID != "" && cb.WakeID != c.WakeID {
		return refuse(CodeAlreadyClaimed, "")
	}
	before := c
	c = c.clone()
	for path, tail := range cb.Tails {
		c.note(path, tail)
	}
	for _, a := range cb.Acks {
		if l, ok := c.Links[a.Path]; ok && l.moves(a.Offset) && a.Offset.After(l.Tail) {
			c = before
			return refuse(CodeInvalidOffset, a.Path)
		}
	}
	links := len(c.Links)
	for i, s := range cb.Subscribe {
		if _, ok := c.Links[s.Path]; !ok &&
			!slices.ContainsFunc(cb.Subscribe[:i], func(o Subscribe) bool { return o.Path == s.Path }) {
			links++
		}
	}
	if links > cb.MaxStreams && links > len(c.Links) {
		c = before
		return refuse(CodeInvalidRequest, "")
	}

	if cb.WakeID != "" && c.State == Waking {
		c.goLive(env)
		c.delivered()
	} else if c.State == Live {
		c.goLive(env)
	}
	for _, a := range cb.Acks {
		c.ack(a.Path, a.Offset)
	}
	for _, s := range cb.Subscribe {
		if _, ok := c.Links[s.Path]; !ok {
			c.Links[s.Path] = Link{Acked: s.From, Tail: cb.Tails[s.Path]}
		}
	}
	for _, p := range cb.Unsubscribe {
		delete(c.Links, p)
	}
	if len(c.Links) == 0 {
		return c, CallbackResult{WakeID: wakeID, Effects: c.Remove(RemovedUnsubscribed)}
	}
	res := CallbackResult{Streams: c.wakeNow().Streams, WakeID: wakeID}
	switch {
	case c.State == Idle:
		res.Wake = c.wakeIfPending(env)
	case cb.Done:
		res.Ended = c.Ended(EndDone)
		res.Wake, res.Idled = c.rest(env), true
	}
	return c, res
}

// Triggered returns the paths of a wake's streams that have pending events (webhook spec, triggered_by).
func (w Wake) Triggered() []string {
	paths := []string{}
	for _, s := range w.Streams {
		if (Link{Acked: s.Acked, Tail: s.Tail}).Pending() {
			paths = append(paths, s.Path)
		}
	}
	return paths
}
