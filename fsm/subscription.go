package fsm

import (
	"encoding/base64"
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
	// Owner is the name of the principal that made it; empty without keys. Clients cannot set it, and it is not shown.
	Owner string
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
	// DisableAfter is how long its endpoint may fail, without a 2xx in between, until the subscription is Disabled; 0
	// for ever.
	DisableAfter time.Duration
	// Rate is how many requests a minute it gets at most, up to MaxRate; 0 for no limit of its own.
	Rate int
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
	// Paused is true while its deliveries are paused: no attempt begins. It is no part of the configuration.
	Paused bool
	// Disabled is true while it is Paused because its endpoint has failed for DisableAfter. Otherwise an operator has
	// paused it.
	Disabled bool
	// PausedAt is when it was Paused; zero if it is not Paused, or if that time was not noted.
	PausedAt time.Time
	// Retired is true if the endpoint has answered 410, until the subscription is resumed.
	Retired bool
	// OpenedAt is when it was resumed last, or got another webhook; zero for never. What failed before that does not
	// count for DisableAfter.
	OpenedAt time.Time
	// Consent is what the endpoint has said about deliveries. It is no part of the configuration. Another webhook makes
	// it void.
	Consent Consent
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
	// FormatOutbox is an event that was handed over (OutboxEvent). Clients cannot ask for it: each target has a
	// subscription of the program's own.
	FormatOutbox Format = "outbox"

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

// Conflict is the error of a PUT of o under s's ID that asks for something else: a *ConflictError.
func (s Subscription) Conflict(o Subscription) error { return &ConflictError{Fields: s.differs(o)} }

// Equal says whether s and o are the same in all fields.
func (s Subscription) Equal(o Subscription) bool {
	same := s.SameConfig(o)
	return same && s.ID == o.ID && s.Generation == o.Generation && s.Owner == o.Owner && s.Secret == o.Secret &&
		s.Previous.Secret == o.Previous.Secret && s.Previous.Until.Equal(o.Previous.Until) &&
		s.CreatedAt.Equal(o.CreatedAt) && s.Version == o.Version && s.Revision == o.Revision && s.Told == o.Told &&
		s.Paused == o.Paused && s.Disabled == o.Disabled && s.PausedAt.Equal(o.PausedAt) && s.Retired == o.Retired &&
		s.OpenedAt.Equal(o.OpenedAt) && s.Consent.Equal(o.Consent)
}

// Stopped says whether nothing is delivered until the subscription is resumed.
func (s Subscription) Stopped() bool { return s.Paused || s.Retired }

// MayHaveResumed says whether a resumption, or a consent, may have ended what its deliveries waited for.
func (s Subscription) MayHaveResumed() bool {
	return !s.Stopped() && (s.Revision > 0 || s.Consent.State != "")
}

// Resumed is the subscription once it is resumed.
func (s Subscription) Resumed() Subscription {
	s.Paused, s.Disabled, s.Retired = false, false, false
	return s
}

// Disables says whether the endpoint, which fails again now, has failed for so long that the subscription is paused.
// The argument since is when it first failed after its last 2xx.
func (s Subscription) Disables(since, now time.Time) bool {
	if since.IsZero() || s.DisableAfter == 0 {
		return false
	}
	if s.OpenedAt.After(since) {
		since = s.OpenedAt
	}
	return now.Sub(since) >= s.DisableAfter
}

// DisabledAs returns the subscription once it is Disabled, which was decided by an earlier form of it. It is
// ErrNotFound if this one is another subscription, is stopped, was resumed since, or has another webhook or
// DisableAfter.
func (s Subscription) DisabledAs(was Subscription) (Subscription, error) {
	if s.Generation != was.Generation || s.Stopped() || s.Webhook != was.Webhook || !s.OpenedAt.Equal(was.OpenedAt) ||
		s.DisableAfter != was.DisableAfter {
		return s, ErrNotFound
	}
	s.Paused, s.Disabled = true, true
	return s, nil
}

// ConsentAsOf has no consent that was given for another webhook. The argument was is the subscription before the
// change.
func (s Subscription) ConsentAsOf(was Subscription) Subscription {
	if s.Webhook != was.Webhook {
		s.Consent = Consent{}
	}
	return s
}

// Reopens says whether a change opens the subscription, or its pause begins or ends. Such a change needs the time. The
// argument was is the subscription before the change.
func (s Subscription) Reopens(was Subscription) bool {
	return s.Paused != was.Paused || s.Stopped() != was.Stopped() || s.Webhook != was.Webhook
}

// PausedAsOf notes since when the subscription is paused, or open. The argument was is the subscription before the
// change.
func (s Subscription) PausedAsOf(now time.Time, was Subscription) Subscription {
	if was.Stopped() && !s.Stopped() || s.Webhook != was.Webhook {
		s.OpenedAt = now.Truncate(time.Millisecond) // as it is stored
	}
	s.Disabled = s.Disabled && s.Paused
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
