package fsm

import "time"

// Outcome is what a transition that ran in the store asks for. Only a router.Router acts on it.
type Outcome struct {
	// Deliveries are attempts to make now. Their deadlines bring them back if the caller dies.
	Deliveries []Delivery
	// Idle are the streams of consumers that have become idle.
	Idle []string
	// Hidden are the primary streams of consumers that have been hidden for a while. The Router asks its watcher
	// to look for them again.
	Hidden []string
	// Removed are the consumers that are gone from now on.
	Removed []Removal
	// Linked counts consumers that were made.
	Linked int
	// Ended are wakes that are over.
	Ended []WakeEnd
	// Left counts the dead letters that the events of gone streams have left.
	Left []Left
	// Quarantined are the consumers that were put in quarantine.
	Quarantined []Quarantined
}

// Quarantined is a consumer whose record cannot be read, or leads to an error. The store leaves it alone, so that it
// stops no other consumer. This ends when its subscription is resumed and the record can be read, or when the
// subscription is deleted.
type Quarantined struct {
	Consumer string
	// Reason is what is wrong with the record; it has at most 200 bytes.
	Reason string
}

// Add merges another outcome into o.
func (o *Outcome) Add(p Outcome) {
	o.Deliveries = append(o.Deliveries, p.Deliveries...)
	o.Idle = append(o.Idle, p.Idle...)
	o.Hidden = append(o.Hidden, p.Hidden...)
	o.Removed = append(o.Removed, p.Removed...)
	o.Linked += p.Linked
	o.Ended = append(o.Ended, p.Ended...)
	o.Left = append(o.Left, p.Left...)
	o.Quarantined = append(o.Quarantined, p.Quarantined...)
}

// Left counts the dead letters that a subscription has for a stream that is gone, by Cause.
type Left struct {
	Subscription, Stream string
	Cause                RemovalCause
	Letters              int
}

// Removal is a consumer that is gone, and why.
type Removal struct {
	Subscription string
	Generation   string
	Consumer     string
	Primary      string
	// Acked is the last acknowledged offset of the primary stream; empty if the consumer had unsubscribed from it.
	Acked Offset
	Cause RemovalCause
}

// RemovalCause is why a consumer is gone.
type RemovalCause string

// The causes.
const (
	// RemovedUnsubscribed: the worker has unsubscribed it from its last stream.
	RemovedUnsubscribed RemovalCause = "unsubscribed"
	// RemovedGivenUp: its deliveries have failed for too long.
	RemovedGivenUp RemovalCause = "given_up"
	// RemovedStreamDeleted: its primary stream was deleted, or an operator asked to forget it.
	RemovedStreamDeleted RemovalCause = "stream_deleted"
	// RemovedStreamGone: upstream has said for all of the grace that there is no such primary stream.
	RemovedStreamGone RemovalCause = "stream_gone"
	// RemovedStreamRecreated: its primary stream was made anew under its name. A new consumer takes its place.
	RemovedStreamRecreated RemovalCause = "stream_recreated"
	// RemovedSubscriptionDeleted: its subscription was deleted.
	RemovedSubscriptionDeleted RemovalCause = "subscription_deleted"
)

// RemovalCauses are all causes.
var RemovalCauses = []RemovalCause{
	RemovedUnsubscribed, RemovedGivenUp, RemovedStreamDeleted, RemovedStreamGone, RemovedStreamRecreated,
	RemovedSubscriptionDeleted,
}

// Sighting is what a process saw of a stream before a transition, and how; zero if it saw nothing.
type Sighting struct {
	// At is when it saw an event; zero if it saw the stream but no event.
	At time.Time
	// Told is when it began to tell the store.
	Told time.Time
	// Gateway is true if the event passed through the gateway.
	Gateway bool
	// Path is the stream, and Tail its end.
	Path string
	Tail Offset
}
