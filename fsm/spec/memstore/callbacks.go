package memstore

import (
	"context"
	"maps"
	"slices"

	"reveille/fsm"
	"reveille/fsm/spec"
)

// Callback implements native.Store.
func (s *Store) Callback(ctx context.Context, cb fsm.Callback) (r fsm.CallbackReply, err error) {
	err = s.do(ctx, func(t *tx) {
		r = t.callback(cb)
	}, "Callback", cb)
	return r, err
}

func (t *tx) callback(cb fsm.Callback) (r fsm.CallbackReply) {
	p := t.home(cb.Consumer.Home)
	cb.Tails = maps.Clone(cb.Tails)
	if cb.Tails == nil {
		cb.Tails = map[string]fsm.Offset{}
	}
	c, there := p.consumers[cb.Consumer.ID]
	for path, tail := range cb.Tails {
		cb.Tails[path] = spec.Raised(p.streams[path].noted, tail, false).Tail
	}
	cb.Subscribe = slices.Clone(cb.Subscribe)
	for i, sub := range cb.Subscribe {
		if _, linked := c.Links[sub.Path]; !linked {
			noted := p.streams[sub.Path].noted
			cb.Tails[sub.Path] = spec.Raised(noted, cb.Tails[sub.Path], false).Tail
			cb.Subscribe[i].From = spec.Beginning(noted, sub.From)
		}
	}
	had := c.Links
	c, res := spec.Callback(c, t.env(p, cb.Consumer.ID), there, cb)
	r = fsm.CallbackReply{Code: res.Code, Path: res.Path, Streams: res.Streams, WakeID: res.WakeID}
	if r.Streams == nil {
		r.Streams = []fsm.StreamTail{}
	}
	if res.Code != "" {
		return r
	}
	t.put(p, c, res.Effects, &r.Outcome)
	for path, tail := range cb.Tails {
		_, linked := had[path]
		if linked || slices.ContainsFunc(cb.Subscribe, func(s fsm.Subscribe) bool { return s.Path == path }) {
			p.raise(path, tail, false)
		}
	}
	return r
}

// Consumer implements control.Store.
func (s *Store) Consumer(ctx context.Context, r fsm.ConsumerRef) (c fsm.Consumer, err error) {
	err = s.call(ctx, func(t *tx) error {
		var there bool
		if c, there = t.home(r.Home).consumers[r.ID]; !there {
			return fsm.ErrNotFound
		}
		c.Links = maps.Clone(c.Links)
		return nil
	}, "Consumer", r)
	return c, err
}
