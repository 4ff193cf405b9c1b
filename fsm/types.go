package fsm

import (
	"cmp"
	"encoding/base64"
	"maps"
	"slices"
	"time"
)

// Subscription maps a glob pattern to a webhook (webhook spec, Subscription). It is immutable, and so are its maps and
// lists.
type Subscription struct {
	// ID is the client's name for it: 1 to 128 characters of A-Za-z0-9._~-.
	ID string
	// Generation tells this subscription from an earlier one of the same ID. Consumers and callback tokens carry it.
	Generation string
	// Pattern in canonical form, see ParsePattern.
	Pattern string
	// Webhook is the URL that wakes are POSTed to.
	Webhook string
	// Secret signs the wakes. It leaves the program only in the answer to the request that has made it.
	Secret string
	// Previous signs them as well, for a time after a rotation of the secret.
	Previous PreviousSecret
	// Description is free text, may be empty.
	Description string
	// Mode, Format and Signature say how the subscription is delivered. A store may hold values that only a later
	// version knows. Streams are linked to such subscriptions as to any other, and their deliveries wait for a version
	// that can make them.
	Mode      Mode
	Format    Format
	Signature Signature
	// Start is where the subscription begins in streams that were there before it. It is Start, or an offset of the one
	// stream that the pattern names. If it is empty, the subscription begins at the end of the streams.
	Start Offset
	// Batch is the largest number of events in a delivery of ModePush, 1 to MaxBatch; 0 in ModeWake.
	Batch int
	// Filter says which events ModePush delivers; zero in ModeWake.
	Filter Filter
	// Ordering says what a delivery of ModePush that failed holds up; empty in ModeWake.
	Ordering Ordering
	// Timeout is how long the endpoint may take to answer a delivery of ModePush. It is 0 in ModeWake, where the
	// settings of the program apply.
	Timeout time.Duration
	// Retry has the delays after the first failed attempt, the second and so on. The attempt after the last delay is
	// the last one. Each delay varies by up to RetryVariance either way. In ModeWake it may be empty. Then the schedule
	// of the webhook spec applies, and failures are given up after a time.
	Retry []time.Duration
	// Headers are sent with each delivery. Their values may be secrets, so they are never shown.
	Headers map[string]string
	// Authorization goes with each delivery. Its secret is never shown either.
	Authorization Authorization
	// Metadata belongs to the client.
	Metadata map[string]string
	// CreatedAt by the store's clock.
	CreatedAt time.Time
	// Version that the list of subscriptions got when this one was created. It tells what came before and what came
	// after.
	Version int64
	// Revision counts the changes that the store has made to it; 0 when it is created.
	Revision int64
	// Told is true once a client other than the creator knows that the subscription exists. That client has asked for
	// the same again or has changed it, while the creator may still wait for an answer.
	Told bool
	// Paused is true while an operator has paused its deliveries: no attempt begins. It is no part of the
	// configuration.
	Paused bool
	// PausedAt is when it was Paused; zero if it is not Paused, or if that time was not noted.
	PausedAt time.Time
}

// Authorization proves to an endpoint that a delivery is allowed. The zero value proves nothing.
type Authorization struct {
	// Query is the parameter that carries the secret in the webhook's query. If it is empty, the secret is the value of
	// the Authorization header.
	Query  string
	Secret string
}

// Mode is what a delivery brings: a call to read the streams, or their events.
type Mode string

// Format is what the request of a delivery looks like.
type Format string

// Signature is the scheme that signs the request of a delivery.
type Signature string

// Ordering is what a failed delivery of ModePush holds up.
type Ordering string

// The known modes, formats, signature schemes and orderings. WithDefaults says which are the defaults.
const (
	ModeWake Mode = "wake"
	// ModePush brings the events themselves.
	ModePush Mode = "push"

	FormatWake Format = "wake"
	// FormatJSON is the event as it stands in the stream, or a JSON array of events.
	FormatJSON Format = "json"
	// FormatCloudEvents and the next two are the modes of the HTTP binding of CloudEvents: structured, binary, batched.
	FormatCloudEvents       Format = "cloudevents"
	FormatCloudEventsBinary Format = "cloudevents-binary"
	FormatCloudEventsBatch  Format = "cloudevents-batch"
	// FormatOJS is one event in the form of the webhooks of Open Job Spec, with their headers and signature.
	FormatOJS Format = "ojs"

	// SignatureHMAC is the scheme of the webhook spec (Webhook Signature Verification), and the default of ModeWake.
	SignatureHMAC Signature = "hmac"
	// SignatureStandardWebhooks is the scheme of Standard Webhooks, https://www.standardwebhooks.com. It is the default
	// of ModePush in every format, because there are libraries for it.
	SignatureStandardWebhooks Signature = "standard-webhooks"

	// OrderingStream is the order of the stream: nothing passes an event whose delivery fails.
	OrderingStream Ordering = "stream"
	// OrderingNone lets a delivery that failed step aside: it is retried by itself while the stream goes on.
	OrderingNone Ordering = "none"
)

// The known values of each. The first is the default, except in Signatures. The mode decides which Formats apply.
var (
	Modes   = []Mode{ModeWake, ModePush}
	Formats = map[Mode][]Format{
		ModeWake: {FormatWake},
		ModePush: {FormatJSON, FormatCloudEvents, FormatCloudEventsBinary, FormatCloudEventsBatch, FormatOJS},
	}
	Signatures = []Signature{SignatureHMAC, SignatureStandardWebhooks}
	Orderings  = []Ordering{OrderingStream, OrderingNone}
)

// Single says whether a request in this format carries only one event.
func (f Format) Single() bool {
	return f == FormatCloudEvents || f == FormatCloudEventsBinary || f == FormatOJS
}

// SecretPrefix begins every secret.
const SecretPrefix = "whsec_"

// NewSecret makes the secret of a new subscription from random bytes. Standard Webhooks decodes what follows the
// prefix. The scheme of the webhook spec uses the whole text as the key.
func (s Signature) NewSecret(random []byte) string {
	if s == SignatureStandardWebhooks {
		return SecretPrefix + base64.StdEncoding.EncodeToString(random)
	}
	return SecretPrefix + base64.RawURLEncoding.EncodeToString(random)
}

// WithDefaults fills in the empty fields that say how the subscription is delivered. Stores call it for what they
// store.
func (s Subscription) WithDefaults() Subscription {
	s.Mode = cmp.Or(s.Mode, ModeWake)
	if s.Mode != ModePush {
		s.Format = cmp.Or(s.Format, FormatWake)
		s.Signature = cmp.Or(s.Signature, SignatureHMAC)
		return s
	}
	s.Signature = cmp.Or(s.Signature, SignatureStandardWebhooks)
	s.Format = cmp.Or(s.Format, FormatJSON)
	s.Batch = cmp.Or(s.Batch, 1)
	s.Ordering = cmp.Or(s.Ordering, OrderingStream)
	s.Timeout = cmp.Or(s.Timeout, PushTimeout)
	if len(s.Retry) == 0 {
		s.Retry = PushRetry
	}
	return s
}

// SameConfig says whether a PUT of o under s's ID asks for what is stored.
func (s Subscription) SameConfig(o Subscription) bool { return len(s.differs(o)) == 0 }

// differs names what a PUT of o under s's ID would change, as the API names it.
func (s Subscription) differs(o Subscription) (fields []string) {
	for _, f := range []struct {
		name string
		same bool
	}{
		{"pattern", s.Pattern == o.Pattern},
		{"webhook", s.Webhook == o.Webhook},
		{"description", s.Description == o.Description},
		{"signature", s.Signature == o.Signature},
		{"start", s.Start == o.Start},
		{"mode", s.Mode == o.Mode},
		{"format", s.Format == o.Format},
		{"batch", s.Batch == o.Batch},
		{"ordering", s.Ordering == o.Ordering},
		{"timeout", s.Timeout == o.Timeout},
		{"retry", slices.Equal(s.Retry, o.Retry)},
		{"headers", maps.Equal(s.Headers, o.Headers)},
		{"authorization", s.Authorization == o.Authorization},
		{"metadata", maps.Equal(s.Metadata, o.Metadata)},
	} {
		if !f.same {
			fields = append(fields, f.name)
		}
	}
	return append(fields, s.Filter.differs(o.Filter)...)
}

// Conflict is the error of a PUT of o under s's ID that asks for something else: a *ConflictError.
func (s Subscription) Conflict(o Subscription) error { return &ConflictError{Fields: s.differs(o)} }

// Equal says whether s and o are the same in all fields.
func (s Subscription) Equal(o Subscription) bool {
	same := s.SameConfig(o)
	return same && s.ID == o.ID && s.Generation == o.Generation && s.Secret == o.Secret &&
		s.Previous.Secret == o.Previous.Secret && s.Previous.Until.Equal(o.Previous.Until) &&
		s.CreatedAt.Equal(o.CreatedAt) && s.Version == o.Version && s.Revision == o.Revision && s.Told == o.Told &&
		s.Paused == o.Paused && s.PausedAt.Equal(o.PausedAt)
}

// PausedAsOf notes since when the subscription is paused. The argument was is the subscription before the change.
func (s Subscription) PausedAsOf(now time.Time, was Subscription) Subscription {
	switch {
	case !s.Paused:
		s.PausedAt = time.Time{}
	case !was.Paused:
		s.PausedAt = now
	}
	return s
}

// Backfill is the progress of creating the consumers of streams that were there before their subscription.
type Backfill struct{ Done, Total int }

// State of a consumer (webhook spec, State Machine).
type State string

// The states of a consumer.
const (
	Idle   State = "idle"
	Waking State = "waking"
	Live   State = "live"
	// GivenUp is gone for workers: it gets no callback, deadline or attempt. It keeps its offsets. The next event of
	// one of its streams, or a resumption of its subscription, makes it idle again.
	GivenUp State = "given_up"
	// InQuarantine is only shown to operators, for a consumer whose record the store cannot read (Quarantined).
	InQuarantine State = "quarantined"
)

// Link is one stream that a consumer is subscribed to.
type Link struct {
	// Acked is the last acknowledged offset, inclusive; Start if nothing was processed.
	Acked Offset
	// Tail is the stream's end as last noted; empty if no tail is noted yet.
	Tail Offset
	// Past is the tail at which the consumer was given up: what lies beyond is news. It is empty unless the consumer is
	// given up.
	Past Offset
	// Since is the epoch of the consumer when the stream was last deleted or made anew. A worker of that epoch, or of
	// an earlier one, may have read the stream before, so its acks do not count. It is 0 if that never happened to the
	// link.
	Since int64
}

// Pending says whether the stream has unprocessed events (webhook spec, Pending Work). An ack of another incarnation
// acknowledges nothing in this one.
func (l Link) Pending() bool { return l.Tail.Ahead(l.Acked) }

// Consumer is one consumer instance. All times have the precision of a millisecond.
type Consumer struct {
	// ID, Subscription, Generation, Primary and Born never change.
	ID           string
	Subscription string
	Generation   string
	Primary      string
	// Born is the epoch that the consumer was made with, if it was made with a Profile. It tells the consumer from an
	// earlier one of the same ID, which had another stream.
	Born    int64
	Profile Profile
	// Asides counts the asides of the consumer. They go with it.
	Asides int
	// Replay is the number of the dead letter, or of the span, that an aside replays; 0 for none. Replaying is the
	// number of what an aside of the consumer replays; 0 for none. Replayed is ReplayQueue.Done.
	Replay, Replaying, Replayed int64
	// Letter is the number of the dead letter that the consumer has left as it was given up. It is 0 if there is no
	// letter, and while the consumer is not given up. The letter may be gone: letters are discarded, and dropped by age
	// and number.
	Letter int64

	State State
	// Epoch of the current wake, or of the last one while idle.
	Epoch int64
	// WakeID of the current wake; kept while idle so that a repeated final callback still matches.
	WakeID string
	// WokeAt is when that wake began; zero if there was no wake.
	WokeAt time.Time
	// Links by stream path.
	Links map[string]Link

	// Attempt counts the delivery attempts begun in this wake. If the Profile has Delays, it counts the attempts whose
	// failure was reported, and the attempt that is out. If the wake of a push replaces one after a loss, the count
	// goes on.
	Attempt int
	// Span is Failure.Span of this wake's first failure.
	Span int64
	// Again is true once an attempt of this wake was taken back that may have been sent.
	Again bool
	// Handed counts how often an attempt of this wake was handed out. It includes the attempts that were taken back, so
	// that no two have the same number.
	Handed int
	// Holder is the last caller that got an attempt of this wake by Begin.
	Holder Holder
	// Sent is true from the beginning of an attempt until it fails, succeeds or is taken back.
	Sent bool
	// Nudged is the deadline that a nudge has put forward (spec.ReleaseHeld); zero without one. An attempt that begins
	// before it does not count if it fails. After such a failure, Nudged is the time of the failure. The next attempt
	// then counts, and there is no other nudge until that attempt has failed.
	Nudged time.Time
	// Probed is true if Nudged was set by a probe (spec.Probe). Unlike a nudge, a probe may come any number of times.
	Probed bool
	// FirstFailure is when the uninterrupted run of failed attempts began; zero without one. An attempt that was not
	// answered in time fails when its request must have ended. So FirstFailure may lie ahead for a while, unless the
	// failure of another attempt is reported. Until then the consumer is shown without a failure (AsOf).
	FirstFailure time.Time
	// Uncounted is the part of the time since FirstFailure that does not count, because no attempt could be made. In
	// that time no replica acted on a deadline, the attempt was parked, or the consumer was hidden or idle. While the
	// consumer is idle, the counted time is subtracted; Uncounted may be negative.
	Uncounted time.Duration
	// ParkedAt is when the next attempt was parked: it was handed out and not begun (spec.Park). The time since then
	// does not count either. It is zero if no attempt is parked, and without a FirstFailure.
	ParkedAt time.Time
	// LastError is why the last attempt failed, in a few words; empty without an uninterrupted run of failed attempts.
	LastError string
	// Retired is true when the endpoint answered 410: no delivery until the subscription is resumed.
	Retired bool
	// Stalled counts the wakes in a row that ended with work pending and no acked offset moved.
	Stalled int
	// Moved is true once an acked offset moved in this wake.
	Moved bool
	// HiddenAt is when upstream said that the primary stream is gone; zero while it is there.
	HiddenAt time.Time
	// Deadline is when the one thing this state waits for is due; zero if it waits for nothing.
	Deadline time.Time
}

// Holder is the caller that got an attempt by Begin. By identifies the caller, and Handed is the number of that
// attempt.
type Holder struct {
	Handed int
	By     string
}

// StreamTail is a stream of a wake: where its consumer stands and where the stream ends.
type StreamTail struct {
	Path  string
	Acked Offset
	Tail  Offset
}

// Wake is one delivery attempt that its receiver makes now. Every attempt of a wake cycle has the same Epoch and
// WakeID. Offsets and tails are as they were when the attempt was handed out.
type Wake struct {
	Consumer     string
	Subscription string
	Generation   string
	Primary      string
	Epoch        int64
	WakeID       string
	// WokeAt is when the wake cycle began, by the store's clock.
	WokeAt time.Time
	// Attempt counts from 1 within the wake cycle, Handed is Consumer.Handed.
	Attempt, Handed int
	// Born tells the consumer from an earlier one of its ID, which had another stream (EventID); 0 without a Profile.
	Born int64
	// Patience is how long the attempt may be out; 0 without a Profile that sets it.
	Patience time.Duration
	// Nudged is true if a failure of the attempt does not count (Consumer.Nudged).
	Nudged bool
	// Replay is true if the wake replays a dead letter, or a span of its stream.
	Replay bool
	// Span is the number of events that the attempts before have brought, or of bytes in a stream that is not JSON. It
	// is 0 if no attempt has brought any. A further attempt brings no more, so that no event has only the last attempt.
	Span int64
	// Streams has the primary first if the consumer is still subscribed to it, then the others by path.
	Streams []StreamTail
	// Seen is how this process learned of the event that caused the wake. The store does not keep it.
	Seen Sighting
	// Asked is when this process called the store, by its own clock: the attempt was handed out no earlier. The store
	// does not keep it.
	Asked time.Time
}

// GoodUntil is until when the attempt may begin as it was handed out, by the clock of Asked. Until then its deadline is
// far enough away that the endpoint has its time. Later the store is asked anew (spec.Begin). The argument waking is
// Timing.Waking.
func (w Wake) GoodUntil(waking time.Duration) time.Time {
	if w.Patience > 0 {
		return w.Asked.Add(min(AttemptMargin, w.Patience) / 2)
	}
	return w.Asked.Add(waking / 2)
}

// Ref names the delivery attempt in the transitions that follow from it. A transition whose Ref is not the current
// one changes nothing.
func (w Wake) Ref() WakeRef {
	return WakeRef{
		Consumer: ConsumerRef{ID: w.Consumer, Home: w.Primary}, Epoch: w.Epoch, WakeID: w.WakeID,
		Attempt: w.Attempt, Handed: w.Handed,
	}
}

// End is the position behind which a delivery of the wake brings nothing; empty if there is no end.
func (w Wake) End() Offset {
	if _, aside := AsideOf(w.Consumer); !aside {
		return ""
	}
	return w.Streams[0].Tail
}

// At is where the consumer stands in one of its streams; Start if it has no such stream.
func (w Wake) At(path string) Offset {
	for _, s := range w.Streams {
		if s.Path == path {
			return s.Acked
		}
	}
	return Start
}

// ConsumerRef names a consumer, and says where the store keeps it.
type ConsumerRef struct {
	ID string
	// Home decides on the partition (PartitionStore.PartitionOf): it is the primary stream.
	Home string
}

// Ref names the consumer.
func (c Consumer) Ref() ConsumerRef { return ConsumerRef{ID: c.ID, Home: c.Primary} }

// RefOf names the consumer that a subscription has for a stream.
func RefOf(subscription, stream string) ConsumerRef {
	return ConsumerRef{ID: ConsumerID(subscription, stream), Home: stream}
}

// WakeRef names one delivery attempt of one wake cycle. Handed tells it from an attempt with the same Attempt that was
// taken back.
type WakeRef struct {
	Consumer        ConsumerRef
	Epoch           int64
	WakeID          string
	Attempt, Handed int
}

// Failure is why a delivery attempt failed.
type Failure struct {
	// RetryAfter is the least time that the endpoint asked for; at most MaxRetryAfter counts.
	RetryAfter time.Duration
	// Retired is true if the endpoint answered 410.
	Retired bool
	// Profile is the present profile of the subscription: the consumer follows it from then on.
	Profile Profile
	// Span is the number of events that the attempt has brought, or of bytes in a stream that is not JSON; 0 for a
	// wake.
	Span int64
	// To, Within and Tail are as in Delivered, of the primary stream; empty unless the Profile is Aside.
	To, Within, Tail Offset
	// Reason explains the failure to an operator in at most MaxReason bytes. It holds no URL and nothing that the
	// endpoint sent, except the scheme and host of a redirect.
	Reason string
}

// Delivered is the result for the events of a stream that an attempt of ModePush has brought.
type Delivered struct {
	Path string
	// To is the position behind the last event. Tail is the end of the stream, as the read has shown it.
	To, Tail Offset
	// Within is Batch.Within. It counts if an attempt of the wake may have been sent twice, because the other request
	// may have brought more. It also counts for an aside, whose end is such a position.
	Within Offset
	// Profile is as in Failure.
	Profile Profile
	// Dead is the dead letter that the events leave, without ID and times; nil if they were delivered.
	Dead *DeadLetter
	// Unsent is true if no event was sent: a filter leaves them out, or they cannot be sent. It counts only for the
	// attempt that is out. The next attempt, with another filter, may have failed to deliver them.
	Unsent bool
}

// MaxReason bounds Failure.Reason in bytes.
const MaxReason = 200

// ReasonTimeout is the Reason of an attempt that was not answered in time.
const ReasonTimeout = "no answer in time"

// StreamInfo is what a HEAD of a stream says.
type StreamInfo struct {
	// Exists is true if the server has the stream. If it is false, the other fields are zero, except Empty and its
	// Tail.
	Exists bool
	// Empty is true if every name is a stream to the server, and this one shows no event, or none any more. Tail is
	// then Start.
	Empty bool
	Tail  Offset
	// TTL is true if the stream has a sliding time to live, which any read would extend.
	TTL bool
	// Closed is true if no append can follow.
	Closed bool
	// NotJSON is true if the server has said that the stream is of another content type.
	NotJSON bool
}

// Gone says whether the server has said that there is no such stream.
func (i StreamInfo) Gone() bool { return !i.Exists && !i.Empty }
