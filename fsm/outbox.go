package fsm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OutboxEvent is an event that was handed over for one target (delivery semantics, Storage). It lies in a JSON stream
// of that target, as this JSON. The store keeps all but its Payload.
type OutboxEvent struct {
	ID string `json:"id"`
	// Key is the idempotency key: the same key again is the same event.
	Key      string `json:"idempotency_key"`
	Provider string `json:"provider,omitempty"`
	Type     string `json:"event_type"`
	Target   string `json:"target_url"`
	// MaxAttempts is the number of attempts after which the event is dead; 0 for that of the OutboxConfig.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// RetentionMs is how long the event is kept once it is delivered or cancelled, ms; 0 for OutboxRetention.
	RetentionMs int64 `json:"retention_ms,omitempty"`
	// ReplayOf is the ID of the event that this one delivers again; empty for none.
	ReplayOf string          `json:"replay_of,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// CreatedAt is when it was handed over, in milliseconds since 1970, by the clock of the replica that took it.
	CreatedAt int64 `json:"created_at"`
	// DeliverAt is when the event is delivered at the earliest, in milliseconds since 1970. It lies after CreatedAt, or
	// is 0 for at once.
	DeliverAt int64 `json:"deliver_at,omitempty"`
	// Released says of the event as it lies in its stream that it was put there when its DeliverAt had come.
	Released bool `json:"released,omitempty"`
	// Digest is of all that the client has asked for.
	Digest string `json:"digest,omitempty"`
	// Payload is the body of each delivery, JSON. It is a text here, because stream servers may write JSON anew.
	Payload string `json:"payload,omitempty"`
}

// Retention is how long the event is kept once it is delivered or cancelled.
func (e OutboxEvent) Retention() time.Duration {
	return cmp.Or(time.Duration(e.RetentionMs)*time.Millisecond, OutboxRetention)
}

// Begins is from when on the event is delivered.
func (e OutboxEvent) Begins() time.Time { return time.UnixMilli(max(e.CreatedAt, e.DeliverAt)) }

// ExpiredUnseen says whether an event that the store does not keep may have been delivered and expired.
func (e OutboxEvent) ExpiredUnseen(now time.Time) bool {
	return !e.Begins().Add(max(e.Retention(), OutboxRetention)).After(now)
}

// OutboxStatus is what has become of an OutboxEvent (delivery semantics, Delivery Flow).
type OutboxStatus string

// The statuses.
const (
	// OutboxPending: no attempt has begun.
	OutboxPending OutboxStatus = "pending"
	// OutboxDelivering: an attempt is under way.
	OutboxDelivering OutboxStatus = "delivering"
	OutboxDelivered  OutboxStatus = "delivered"
	// OutboxRetrying: an attempt has failed, and another one follows.
	OutboxRetrying OutboxStatus = "retrying"
	// OutboxDead: no further attempt follows.
	OutboxDead OutboxStatus = "dead_letter"
	// OutboxCancelled: a client has cancelled it before it was delivered.
	OutboxCancelled OutboxStatus = "cancelled"
	// OutboxExpired is the status of a record whose event is not kept any more, and may lie in its stream once more.
	// Only its times and DeliveredAt are left of it. Clients never see it.
	OutboxExpired OutboxStatus = "expired"
)

// OutboxStatuses are all that clients see.
var OutboxStatuses = []OutboxStatus{
	OutboxPending, OutboxDelivering, OutboxDelivered, OutboxRetrying, OutboxDead, OutboxCancelled,
}

// Over says whether the status is final.
func (s OutboxStatus) Over() bool {
	return s == OutboxDelivered || s == OutboxDead || s == OutboxCancelled
}

// OutboxRecord is what the store keeps of an OutboxEvent.
type OutboxRecord struct {
	// Event lacks its Payload.
	Event OutboxEvent
	// Stream is where the event lies.
	Stream string
	// Status is OutboxPending until the event is taken up, then OutboxDelivering until it is over. State has the
	// present one.
	Status OutboxStatus
	// Attempts counts the attempts whose result is known.
	Attempts int
	// Consumer brings the event, which lies behind its Place. Both are empty if the stream had no consumer yet when the
	// event was handed over.
	Consumer, Place string
	// LastAttemptAt is when the result of an attempt was last known, and DeliveredAt when the event was delivered; zero
	// for never.
	LastAttemptAt, DeliveredAt time.Time
	// ExpiresAt is when the event is not kept any more; zero unless it is delivered or cancelled.
	ExpiresAt time.Time
	// LastError says why the last attempt failed, in a few words, and LastStatus is the status of its answer; empty and
	// 0 for none.
	LastError  string
	LastStatus int
	// Tries are the last attempts whose result is known, MaxOutboxTries at most.
	Tries []OutboxTry
	// DelayedUntil is when the event is put into its stream again, as its DeliverAt has come; zero if it does not wait
	// for that.
	DelayedUntil time.Time
}

// OutboxTry is an attempt to deliver an event. Error and Status are as LastError and LastStatus; Error is empty for the
// attempt that has delivered it.
type OutboxTry struct {
	At     time.Time
	Status int
	Error  string
}

// Tried returns the attempts with one more.
func Tried(tries []OutboxTry, t OutboxTry) []OutboxTry {
	t.Error = strings.ReplaceAll(t.Error, "\n", " ")
	tries = append(slices.Clone(tries), t)
	return tries[max(0, len(tries)-MaxOutboxTries):]
}

// OutboxState is what a client sees of an OutboxRecord.
type OutboxState struct {
	Status   OutboxStatus
	Attempts int
	// NextRetryAt is when the next attempt is due; zero unless the event is OutboxRetrying.
	NextRetryAt time.Time
}

// OutboxEntry is what the store keeps of an event, and its present state.
type OutboxEntry struct {
	OutboxRecord
	OutboxState
}

// OutboxRoom is what decides whether an event can be handed over to a stream.
type OutboxRoom struct {
	// Open is how many events of the stream's partition are not over, and Dead how many are dead. Neither go by
	// themselves.
	Open, Dead int64
	// Removing is true while the stream is being removed.
	Removing bool
}

// Full says whether no further event can be handed over.
func (r OutboxRoom) Full() bool { return r.Open+r.Dead >= MaxOutboxEvents }

// OutboxList names the lists that the store keeps of the events: of those that are over by their status, and of all
// others. A list has the events in the order in which they were handed over.
type OutboxList string

// OutboxOpen is the list of those that are not over.
const OutboxOpen OutboxList = "open"

// OutboxListsOf returns the lists that may have an event of a status; all for an empty one. Only an event whose
// consumer is gone with its stream is over and still on the list OutboxOpen.
func OutboxListsOf(s OutboxStatus) []OutboxList {
	switch {
	case s == "":
		return []OutboxList{
			OutboxOpen, OutboxList(OutboxDelivered), OutboxList(OutboxDead), OutboxList(OutboxCancelled),
		}
	case s == OutboxCancelled:
		return []OutboxList{OutboxList(s)}
	case s.Over():
		return []OutboxList{OutboxOpen, OutboxList(s)}
	}
	return []OutboxList{OutboxOpen}
}

// OutboxPlace is where an event stands in a list. Places sort by when the events were handed over, and then by ID.
type OutboxPlace string

// OutboxPlaceOf returns the place of an event that was handed over at a time in milliseconds.
func OutboxPlaceOf(createdAt int64, id string) OutboxPlace {
	return OutboxPlace(fmt.Sprintf("%013d %s", createdAt, id))
}

// ID is the ID of the event.
func (p OutboxPlace) ID() string {
	_, id, _ := strings.Cut(string(p), " ")
	return id
}

// ValidOutboxPlace says whether a text is a place.
func ValidOutboxPlace(text string) bool { return outboxPlace.MatchString(text) }

var outboxPlace = regexp.MustCompile(`^[0-9]{13} whe_[0-9]+_[0-9a-f]+$`)

// OutboxSpan is a part of some lists in a partition: what was handed over since a time in milliseconds, and stands
// before a place. An empty place is the end.
type OutboxSpan struct {
	Partition int
	Lists     []OutboxList
	Since     int64
	Before    OutboxPlace
}

// Place is where the consumer stands in its primary stream. Consumers of earlier streams of that name have others.
func (c Consumer) Place() string {
	return strconv.FormatInt(c.Born, 10) + " " + string(c.Links[c.Primary].Acked)
}

// OutboxBearer is the consumer that brings an event; its State is empty if it is gone.
type OutboxBearer struct {
	State    State
	Sent     bool
	Attempt  int
	Deadline time.Time
	Place    string
}

// Bearer is the consumer as it brings an event.
func (c Consumer) Bearer() OutboxBearer {
	return OutboxBearer{State: c.State, Sent: c.Sent, Attempt: c.Attempt, Deadline: c.Deadline, Place: c.Place()}
}

// From is the offset that the event lies behind.
func (r OutboxRecord) From() Offset {
	_, offset, _ := strings.Cut(r.Place, " ")
	return cmp.Or(Offset(offset), Start)
}

// State returns the state of an event from the consumer that brings it, as both are at the same moment. A consumer goes
// with its stream. Then nothing can deliver the event any more, unless it was delivered before a replay.
func (r OutboxRecord) State(c OutboxBearer) OutboxState {
	born, _, _ := strings.Cut(r.Place, " ")
	bornNow, _, _ := strings.Cut(c.Place, " ")
	s := OutboxState{Status: OutboxPending, Attempts: r.Attempts}
	switch {
	case r.Status.Over():
		s.Status = r.Status
	case r.Consumer == "":
	case c.State == "" || born != bornNow:
		s.Status = OutboxDead
		if !r.DeliveredAt.IsZero() {
			s.Status = OutboxDelivered
		}
	case r.Status == OutboxPending || c.State != Waking || c.Place != r.Place:
	case c.Sent:
		s.Status, s.Attempts = OutboxDelivering, c.Attempt
	case c.Attempt > 0:
		s.Status, s.Attempts, s.NextRetryAt = OutboxRetrying, c.Attempt, c.Deadline
	}
	return s
}

// OutboxPrefix begins the ID of an OutboxEvent, KeyPrefix an idempotency key that a client has left out.
const (
	OutboxPrefix = "whe_"
	KeyPrefix    = "idk_"
)

// NewOutboxID returns the ID of an event in a stream of a partition, from hexadecimal digits.
func NewOutboxID(partition int, digits string) string {
	return OutboxPrefix + strconv.Itoa(partition) + "_" + digits
}

// OutboxPartition returns the partition that keeps the event of an ID.
func OutboxPartition(id string, partitions int) (int, error) {
	rest, ok := strings.CutPrefix(id, OutboxPrefix)
	number, random, two := strings.Cut(rest, "_")
	n, err := strconv.Atoi(number)
	if !ok || !two || err != nil || n < 0 || n >= partitions || strconv.Itoa(n) != number || random == "" {
		return 0, fmt.Errorf("%q is no id of an event, such as whe_17_5f0c2a9d3b7e4c61", id)
	}
	return n, nil
}

// OutboxKey is what is kept of an idempotency key.
type OutboxKey struct {
	// ID of the event, and Asked: digests of what the client has asked for, by field.
	ID    string
	Asked map[string]string
	// New is true if no event had the key.
	New bool
}

const (
	// OutboxReserved is how long a key is kept whose event was never handed over, as far as is known. If the event lies
	// in its stream after all, it is not sent any more by then, unless it is for later, or kept for longer than by
	// default.
	OutboxReserved = OutboxRetention + 24*time.Hour
	// MaxOutboxTries bounds OutboxRecord.Tries.
	MaxOutboxTries = 20
	// OutboxPutOff is after how long a delayed event is looked at again that could not be put into its stream.
	OutboxPutOff = 10 * time.Second
	// OutboxRemoval is how long the removal of a stream takes at least. A hand-over that began before it has ended by
	// then, and no other one writes to the stream.
	OutboxRemoval = time.Minute
	// MaxOutboxEvents bounds the events of an OutboxRoom.
	MaxOutboxEvents = 100_000
	// MaxOutboxTargets bounds the targets that events are handed over for.
	MaxOutboxTargets = 10_000
)

// OutboxSubscription returns the ID of the subscription that delivers what was handed over for a target, from the 24
// hexadecimal digits that name the target.
func OutboxSubscription(target string) string { return "outbox." + target }

// NoticeSubscription returns the ID of the subscription that brings an operator's webhook its notices, from the 24
// hexadecimal digits that name their stream.
func NoticeSubscription(stream string) string { return noticeSubscriptions + stream }

const noticeSubscriptions = "notices."

var ownSubscription = regexp.MustCompile(`^(outbox|notices)\.[0-9a-f]{24}$`)

// IsOwnSubscription says whether an ID is one that OutboxSubscription or NoticeSubscription returns. Clients cannot use
// it.
func IsOwnSubscription(id string) bool { return ownSubscription.MatchString(id) }

// IsNoticeSubscription says whether an ID is one that NoticeSubscription returns.
func IsNoticeSubscription(id string) bool {
	return IsOwnSubscription(id) && strings.HasPrefix(id, noticeSubscriptions)
}
