package fsm

import (
	"errors"
	"strings"
)

// Code is the machine-readable cause of a refused request.
type Code string

// The codes of a refused callback (webhook spec, Error Responses).
const (
	CodeInvalidRequest Code = "INVALID_REQUEST"
	CodeTokenExpired   Code = "TOKEN_EXPIRED"
	CodeTokenInvalid   Code = "TOKEN_INVALID"
	CodeAlreadyClaimed Code = "ALREADY_CLAIMED"
	CodeInvalidOffset  Code = "INVALID_OFFSET"
	CodeStaleEpoch     Code = "STALE_EPOCH"
	CodeConsumerGone   Code = "CONSUMER_GONE"
)

// The codes of a refused subscription request, and those that any request may draw.
const (
	CodeInvalidSubscriptionID Code = "INVALID_SUBSCRIPTION_ID"
	CodeInvalidPattern        Code = "INVALID_PATTERN"
	CodeInvalidWebhook        Code = "INVALID_WEBHOOK"
	CodeSubscriptionConflict  Code = "SUBSCRIPTION_CONFLICT"
	CodeSubscriptionNotFound  Code = "SUBSCRIPTION_NOT_FOUND"
	CodeBodyTooLarge          Code = "BODY_TOO_LARGE"
	CodeInvalidPath           Code = "INVALID_PATH"
	CodeNotFound              Code = "NOT_FOUND"
	// CodeIdempotencyConflict: another event has the idempotency key.
	CodeIdempotencyConflict Code = "IDEMPOTENCY_CONFLICT"
	// CodeCancelRefused: the event that was handed over is delivered, or an attempt is under way.
	CodeCancelRefused Code = "CANCEL_REFUSED"
	// CodeReplayRefused: the events of a dead letter, or of a stream, cannot be delivered again as asked for.
	CodeReplayRefused Code = "REPLAY_REFUSED"
	// CodeRetryRefused: there is nothing of a delivery to try again, or it cannot be tried now.
	CodeRetryRefused Code = "RETRY_REFUSED"
	// CodeRequestUnknown: nothing was sent in an attempt, or the log does not say enough of its request.
	CodeRequestUnknown Code = "REQUEST_UNKNOWN"
	// CodeEventsGone: the stream server has no such events any more.
	CodeEventsGone Code = "EVENTS_GONE"
	// CodeEventsChanged: the stream has other events now, where those of an attempt were.
	CodeEventsChanged Code = "EVENTS_CHANGED"
	// CodeSubscriptionChanged: the subscription has another configuration than at the time of an attempt.
	CodeSubscriptionChanged Code = "SUBSCRIPTION_CHANGED"
	// CodeStreamNotJSON: a subscription to one stream has a filter, which needs JSON, and the stream is not.
	CodeStreamNotJSON        Code = "STREAM_NOT_JSON"
	CodeNotImplemented       Code = "NOT_IMPLEMENTED"
	CodeMethodNotAllowed     Code = "METHOD_NOT_ALLOWED"
	CodeForbidden            Code = "FORBIDDEN"
	CodeUnauthorized         Code = "UNAUTHORIZED"
	CodeUnsupportedMediaType Code = "UNSUPPORTED_MEDIA_TYPE"
	CodeTooManyRequests      Code = "TOO_MANY_REQUESTS"
	CodeUnavailable          Code = "UNAVAILABLE"
	CodeUpstreamUnavailable  Code = "UPSTREAM_UNAVAILABLE"
	CodeInternal             Code = "INTERNAL"
)

// Causes that a Store returns and its callers tell apart.
var (
	// ErrUnavailable: the store cannot be reached or cannot answer now; nothing is known of what it did.
	ErrUnavailable = errors.New("redis is not available")
	// ErrStreamsUnknown: the first search for the streams of the server is not over yet.
	ErrStreamsUnknown = errors.New("the streams of the server are not known yet, try again")
	// ErrNoStream: the stream server has no such stream.
	ErrNoStream = errors.New("upstream has no such stream")
	// ErrNotKept: the stream server no longer keeps an offset, although the stream may exist.
	ErrNotKept = errors.New("upstream does not keep the offset any more")
	// ErrNotFound: no such subscription or consumer.
	ErrNotFound = errors.New("not found")
	// ErrNotBefore: a consumer has acknowledged nothing behind the offset that it is to go back to.
	ErrNotBefore = errors.New("the offset does not lie before what is acknowledged")
)

// ConflictError says that a subscription with that ID and another configuration exists.
type ConflictError struct {
	// Fields are what is different, as the API names them. They are empty if the client may not know.
	Fields []string
}

// Error implements error.
func (e *ConflictError) Error() string {
	if len(e.Fields) == 0 {
		return "this id is taken"
	}
	return "a subscription with this id and another configuration exists: it has another " +
		strings.Join(e.Fields, ", ")
}
