// Package router passes on what a transition in the store asks for, and tells observers what happens.
package router

import "reveille/fsm"

// Observer receives what happens: metrics, logs and traces are observers. A nil field receives nothing, and costs
// nothing. No function may block.
type Observer struct {
	// Transition receives what a transition in the store asks for, before the Router does it. It also receives what
	// this process saw of the stream before the transition.
	Transition func(fsm.Outcome, fsm.Sighting)
	// Attempt receives a finished delivery attempt, before the store learns of it.
	Attempt func(fsm.Attempt)
	// Subscription receives a subscription that this process was asked to make (there) or to delete, after the store
	// has done it.
	Subscription func(sub fsm.Subscription, there bool)
}

// Router is the one place that acts on outcomes and calls observers. A caller that runs a transition in the store
// passes its outcome on to Follow and does nothing else with it. A Router must be connected before anything runs.
type Router struct {
	transitions   []func(fsm.Outcome, fsm.Sighting)
	attempts      []func(fsm.Attempt)
	subscriptions []func(fsm.Subscription, bool)
	deliverer     Deliverer
	streams       StreamWatcher
}

// StreamWatcher is what a Router needs of the part that watches streams.
type StreamWatcher interface {
	// Idle says that consumers of these streams have become idle. It does not block.
	Idle(paths []string)
	// Hidden says that consumers were hidden because upstream had no such stream a moment ago. The watcher looks at the
	// stream, and shows the consumers again if it is there. It does not block.
	Hidden(path string)
}

// New returns a Router with these observers.
func New(observers ...Observer) *Router {
	r := &Router{}
	for _, o := range observers {
		r.Observe(o)
	}
	return r
}

// Observe adds an observer. It must be called before anything runs.
func (r *Router) Observe(o Observer) {
	if o.Transition != nil {
		r.transitions = append(r.transitions, o.Transition)
	}
	if o.Attempt != nil {
		r.attempts = append(r.attempts, o.Attempt)
	}
	if o.Subscription != nil {
		r.subscriptions = append(r.subscriptions, o.Subscription)
	}
}

// Attempted passes a finished delivery attempt to the observers.
func (r *Router) Attempted(a fsm.Attempt) {
	for _, tell := range r.attempts {
		tell(a)
	}
}

// Subscribed passes a subscription that was made (there) or deleted to the observers.
func (r *Router) Subscribed(sub fsm.Subscription, there bool) {
	for _, tell := range r.subscriptions {
		tell(sub, there)
	}
}

// Connect sets the parts that act on what outcomes ask for.
func (r *Router) Connect(d Deliverer, s StreamWatcher) { r.deliverer, r.streams = d, s }

// Follow does what an outcome asks for. If the transition was about a stream, seen is what the process saw of it
// before.
func (r *Router) Follow(o fsm.Outcome, seen fsm.Sighting) {
	if !seen.At.IsZero() {
		for i := range o.Deliveries {
			o.Deliveries[i].Seen = seen
		}
	}
	for _, tell := range r.transitions {
		tell(o, seen)
	}
	if len(o.Deliveries) > 0 {
		r.deliverer.Deliver(o.Deliveries)
	}
	if len(o.Idle) > 0 {
		r.streams.Idle(o.Idle)
	}
	for i, path := range o.Hidden {
		if i == 0 || path != o.Hidden[i-1] { // each of a stream's consumers names it
			r.streams.Hidden(path)
		}
	}
}

// Deliverer makes delivery attempts. Deliver does not block.
type Deliverer interface {
	Deliver(deliveries []fsm.Delivery)
}
