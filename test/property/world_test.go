package property

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"time"

	"reveille/fsm"
)

// world is the specification's side of a history: consumers that change by the pure transitions only.
type world struct {
	now       time.Time
	nonce     string
	jitter    fsm.Jitter
	timing    fsm.Timing
	consumers map[string]fsm.Consumer
	// tails are of the streams that some consumer is linked to, or is the primary's.
	tails map[string]fsm.Offset
	floor int64
	dead  map[string]bool
	// life is the store's, fence what the partition has on record.
	life  string
	fence fsm.Fence
}

func (w *world) env(id string) fsm.Env {
	sum := sha1.Sum([]byte(w.nonce + id))
	return fsm.Env{
		Now: w.now, WakeID: "w_" + hex.EncodeToString(sum[:])[:20], Base: w.fence.In(w.life, w.now).Base, Jitter: w.jitter, Timing: w.timing,
	}
}

func (w *world) ids() []string {
	ids := make([]string, 0, len(w.consumers))
	for id := range w.consumers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// alive returns a consumer unless its subscription was deleted.
func (w *world) alive(id string) (fsm.Consumer, bool) {
	c, ok := w.consumers[id]
	return c, ok && !w.dead[c.Generation]
}

func (w *world) concerned(path string) bool {
	for _, c := range w.consumers {
		if _, linked := c.Links[path]; linked || c.Primary == path {
			return true
		}
	}
	return false
}

// put stores what a transition returned and collects its effects.
func (w *world) put(c fsm.Consumer, e fsm.Effects, o *fsm.Outcome) {
	if e.Wake != nil {
		o.Wakes = append(o.Wakes, *e.Wake)
	}
	if e.Idled {
		for path := range w.consumers[c.ID].Links {
			o.Idle = append(o.Idle, path)
		}
	}
	if e.Hidden {
		o.Hidden = append(o.Hidden, c.Primary)
	}
	if e.Ended != nil {
		o.Ended = append(o.Ended, *e.Ended)
	}
	if e.Removed {
		w.take(c, o)
		return
	}
	if c.Epoch > w.consumers[c.ID].Epoch {
		w.fence = w.fence.In(w.life, w.now)
	}
	w.consumers[c.ID] = c
}

// remove is for a consumer that is removed without a transition of its own.
func (w *world) remove(c fsm.Consumer, o *fsm.Outcome) {
	if end := c.Ended(fsm.EndRemoved); end != nil {
		o.Ended = append(o.Ended, *end)
	}
	w.take(c, o)
}

func (w *world) take(c fsm.Consumer, o *fsm.Outcome) {
	w.floor = max(w.floor, c.Epoch)
	delete(w.consumers, c.ID)
	o.Removed++
	for path := range w.tails {
		if !w.concerned(path) {
			delete(w.tails, path)
		}
	}
}

// raise notes a tail for every consumer that is linked to the stream, without waking anybody.
func (w *world) raise(path string, tail fsm.Offset) {
	if !w.concerned(path) {
		return
	}
	if tail.After(w.tails[path]) {
		w.tails[path] = tail
	}
	w.spread(path)
}

func (w *world) spread(path string) {
	for id, c := range w.consumers {
		if l, ok := c.Links[path]; ok && l.Tail != w.tails[path] {
			links := map[string]fsm.Link{}
			for p, k := range c.Links {
				links[p] = k
			}
			l.Tail = w.tails[path]
			links[path] = l
			c.Links = links
			w.consumers[id] = c
		}
	}
}

func (w *world) link(sub fsm.Subscription, path string, acked, tail fsm.Offset) (o fsm.Outcome) {
	id := fsm.ConsumerID(sub.ID, path)
	if w.dead[sub.Generation] {
		return o
	}
	c, ok := w.consumers[id]
	if ok && c.Generation != sub.Generation {
		w.remove(c, &o)
		ok = false
	}
	if !ok {
		c = fsm.NewConsumer(sub, path, acked, w.floor)
		w.consumers[id] = c
		o.Linked++
		w.spread(path)
	}
	w.raise(path, tail)
	c, e := w.consumers[id].Observe(w.env(id), path, tail)
	w.put(c, e, &o)
	return o
}

func (w *world) observe(path string, tail fsm.Offset) (o fsm.Observation) {
	o = fsm.Observation{Busy: true}
	if !w.concerned(path) {
		return o
	}
	o.Watched = true
	w.raise(path, tail)
	o.Tail = w.tails[path]
	for _, id := range w.ids() {
		c, alive := w.alive(id)
		_, linked := c.Links[path]
		if !alive || !linked && c.Primary != path {
			continue
		}
		c, e := c.Observe(w.env(id), path, tail)
		w.put(c, e, &o.Outcome)
		if c.State == fsm.Idle && c.HiddenAt.IsZero() && linked {
			o.Busy = false
		}
	}
	return o
}

func (w *world) hide(path string, a fsm.Absence) (o fsm.Outcome, found bool) {
	for _, id := range w.ids() {
		if c := w.consumers[id]; c.Primary == path {
			found = true
			c, e := c.Hide(w.env(id), a)
			w.put(c, e, &o)
		}
	}
	return o, found
}

func (w *world) restart(path string, was, tail fsm.Offset) (o fsm.Outcome) {
	if !w.concerned(path) || w.tails[path] != was {
		return o
	}
	w.tails[path] = tail
	for _, id := range w.ids() {
		c, alive := w.alive(id)
		if !alive {
			continue
		}
		if c.Primary == path {
			sub := fsm.Subscription{ID: c.Subscription, Generation: c.Generation}
			w.remove(c, &o)
			w.tails[path] = tail
			w.consumers[id] = fsm.NewConsumer(sub, path, fsm.Start, c.Epoch)
			w.spread(path)
			c, e := w.consumers[id].Observe(w.env(id), path, tail)
			w.put(c, e, &o)
			continue
		}
		c, e := c.Restart(w.env(id), path, tail)
		w.put(c, e, &o)
	}
	w.spread(path)
	return o
}

func (w *world) deleted(path string) (o fsm.Outcome) {
	for _, id := range w.ids() {
		c := w.consumers[id]
		if c.Primary == path {
			w.remove(c, &o)
		} else {
			c, e := c.Restart(w.env(id), path, "")
			w.put(c, e, &o)
		}
	}
	delete(w.tails, path)
	return o
}

func (w *world) due() (o fsm.Outcome, n int) {
	for _, id := range w.ids() {
		c := w.consumers[id]
		if c.Deadline.IsZero() || c.Deadline.After(w.now) {
			continue
		}
		n++
		if w.dead[c.Generation] {
			w.remove(c, &o)
			continue
		}
		c, e := c.Due(w.env(id))
		w.put(c, e, &o)
	}
	return o, n
}

// transition runs one that is about a single consumer.
func (w *world) transition(id string, f func(fsm.Consumer, fsm.Env) (fsm.Consumer, fsm.Effects)) (o fsm.Outcome) {
	if c, alive := w.alive(id); alive {
		c, e := f(c, w.env(id))
		w.put(c, e, &o)
	}
	return o
}

func (w *world) callback(cb fsm.Callback) (r fsm.CallbackReply) {
	c, alive := w.alive(cb.Consumer)
	for path, tail := range cb.Tails {
		// What upstream was asked for raises nothing that was noted already.
		if w.tails[path].After(tail) {
			cb.Tails[path] = w.tails[path]
		}
	}
	for _, s := range cb.Subscribe {
		if _, asked := cb.Tails[s.Path]; !asked && w.tails[s.Path] != "" {
			cb.Tails[s.Path] = w.tails[s.Path]
		}
	}
	after, res := c.Callback(w.env(cb.Consumer), alive, cb)
	r = fsm.CallbackReply{Code: res.Code, Path: res.Path, Streams: res.Streams, WakeID: res.WakeID}
	if r.Streams == nil {
		r.Streams = []fsm.StreamTail{}
	}
	if res.Code != "" {
		return r
	}
	had := c.Links
	if res.Idled {
		// Streams of interest are those that it is subscribed to now.
		for path := range after.Links {
			r.Idle = append(r.Idle, path)
		}
		res.Idled = false
	}
	w.put(after, res.Effects, &r.Outcome)
	for path, tail := range cb.Tails {
		_, linked := had[path]
		if linked || slices.ContainsFunc(cb.Subscribe, func(s fsm.Subscribe) bool { return s.Path == path }) {
			w.raise(path, tail)
		}
	}
	for path := range w.tails {
		if !w.concerned(path) {
			delete(w.tails, path)
		}
	}
	return r
}

func (w *world) drop(sub fsm.Subscription) (o fsm.Outcome) {
	w.dead[sub.Generation] = true
	for _, id := range w.ids() {
		if c := w.consumers[id]; c.Generation == sub.Generation {
			w.remove(c, &o)
		}
	}
	return o
}
