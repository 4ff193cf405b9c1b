package fsm

import "time"

// Outcome is what a transition that ran in the store asks for. Only a Router acts on it.
type Outcome struct {
	// Wakes are delivery attempts to make now. Their deadlines bring them back if the caller dies.
	Wakes []Wake
	// Idle are the streams of consumers that have come to rest.
	Idle []string
	// Hidden are the primary streams of consumers that have been hidden for a while: the Router has them looked for
	// again.
	Hidden []string
	// Gone are the consumers that are gone from now on.
	Gone []Gone
	// Linked counts consumers that were made.
	Linked int
	// Ended are wakes that are over.
	Ended []WakeEnd
	// Left are the dead letters that events have left whose stream is gone.
	Left []Left
	// Quarantined are the consumers that were put in quarantine.
	Quarantined []Quarantined
}

// Quarantined is a consumer whose record cannot be read, or leads to an error. Nothing is done with it, so that it
// stops no other, until its subscription is resumed and it can be read, or its subscription is deleted.
type Quarantined struct {
	Consumer string
	// Reason is what is wrong with the record; it has at most 200 bytes.
	Reason string
}

// Add merges another outcome into o.
func (o *Outcome) Add(p Outcome) {
	o.Wakes = append(o.Wakes, p.Wakes...)
	o.Idle = append(o.Idle, p.Idle...)
	o.Hidden = append(o.Hidden, p.Hidden...)
	o.Gone = append(o.Gone, p.Gone...)
	o.Linked += p.Linked
	o.Ended = append(o.Ended, p.Ended...)
	o.Left = append(o.Left, p.Left...)
	o.Quarantined = append(o.Quarantined, p.Quarantined...)
}

// Left counts the dead letters that a subscription has of a stream that is gone for a cause.
type Left struct {
	Subscription, Stream string
	Cause                GoneCause
	Letters              int
}

// Gone is a consumer that is gone.
type Gone struct {
	Subscription string
	Generation   string
	Consumer     string
	Primary      string
	// Acked is the last acknowledged offset of the primary stream; empty if the consumer had unsubscribed from it.
	Acked Offset
	Cause GoneCause
}

// GoneCause is why a consumer is gone.
type GoneCause string

// The causes.
const (
	// GoneUnsubscribed: the worker has unsubscribed it from its last stream.
	GoneUnsubscribed GoneCause = "unsubscribed"
	// GoneGivenUp: its deliveries have failed for too long.
	GoneGivenUp GoneCause = "given_up"
	// GoneStreamDeleted: its primary stream was deleted, or is to be forgotten.
	GoneStreamDeleted GoneCause = "stream_deleted"
	// GoneStreamGone: upstream has said for all of the grace that there is no such primary stream.
	GoneStreamGone GoneCause = "stream_gone"
	// GoneStreamRecreated: its primary stream was made anew under its name. A new consumer takes its place.
	GoneStreamRecreated GoneCause = "stream_recreated"
	// GoneSubscriptionDeleted: its subscription was deleted.
	GoneSubscriptionDeleted GoneCause = "subscription_deleted"
)

// GoneCauses are all of them.
var GoneCauses = []GoneCause{
	GoneUnsubscribed, GoneGivenUp, GoneStreamDeleted, GoneStreamGone, GoneStreamRecreated, GoneSubscriptionDeleted,
}

// Sighting is what a process saw of a stream before a transition, and how; zero if it saw nothing.
type Sighting struct {
	// At is when it saw an event; zero if it saw the stream but no event.
	At time.Time
	// Told is when it began to tell the store.
	Told time.Time
	// Gateway is true if the event passed through the gateway.
	Gateway bool
	// Path and Tail are the stream and how far it goes.
	Path string
	Tail Offset
}

// Observer is told of what happens: metrics, logs and traces are observers. A nil field hears nothing, and costs
// nothing. No function may block.
type Observer struct {
	// Transition is told of what a transition in the store asks for, before that is done, and of what this process saw
	// that led to it.
	Transition func(Outcome, Sighting)
	// Attempt is told of a delivery attempt that is over, before the store is.
	Attempt func(Attempt)
	// Subscription is told of one that this process was asked to make (there) or to delete, after the store has done
	// it.
	Subscription func(sub Subscription, there bool)
}

// Router is the one place that acts on outcomes, and that observers hear from. A caller that runs a transition in the
// store passes its outcome on to Follow and does nothing else with it. It is ready once it is connected, which is
// before anything runs.
type Router struct {
	transitions   []func(Outcome, Sighting)
	attempts      []func(Attempt)
	subscriptions []func(Subscription, bool)
	deliverer     Deliverer
	streams       StreamWatcher
}

// StreamWatcher is what a Router needs of Streams.
type StreamWatcher interface {
	// Idle says that consumers of these streams have come to rest. It does not block.
	Idle(paths []string)
	// Gone says that consumers were hidden because upstream had no such stream a moment ago. The stream is looked at,
	// and they are shown again should it be there. It does not block.
	Gone(path string)
}

// NewRouter returns a Router with these observers.
func NewRouter(observers ...Observer) *Router {
	r := &Router{}
	for _, o := range observers {
		r.Observe(o)
	}
	return r
}

// Observe adds an observer. It is called before anything runs.
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

// Attempted tells the observers of a delivery attempt that is over.
func (r *Router) Attempted(a Attempt) {
	for _, tell := range r.attempts {
		tell(a)
	}
}

// Subscribed tells the observers of a subscription that was made (there) or deleted.
func (r *Router) Subscribed(sub Subscription, there bool) {
	for _, tell := range r.subscriptions {
		tell(sub, there)
	}
}

// Connect sets the parts that act on what outcomes ask for.
func (r *Router) Connect(d Deliverer, s StreamWatcher) { r.deliverer, r.streams = d, s }

// Follow does what an outcome asks for. seen is what the transition was told of, if it was of a stream.
func (r *Router) Follow(o Outcome, seen Sighting) {
	if !seen.At.IsZero() {
		for i := range o.Wakes {
			o.Wakes[i].Seen = seen
		}
	}
	for _, tell := range r.transitions {
		tell(o, seen)
	}
	if len(o.Wakes) > 0 {
		r.deliverer.Deliver(o.Wakes)
	}
	if len(o.Idle) > 0 {
		r.streams.Idle(o.Idle)
	}
	for i, path := range o.Hidden {
		if i == 0 || path != o.Hidden[i-1] { // each of a stream's consumers names it
			r.streams.Gone(path)
		}
	}
}
