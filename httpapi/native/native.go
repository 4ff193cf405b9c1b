// Package native is the face of the webhook specification: the subscription API, and the callbacks of woken workers.
package native

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"reveille/fsm"
	"reveille/fsm/span"
	"reveille/fsm/throttle"
	"reveille/fsm/token"
	"reveille/httpapi/control"
	"reveille/httpapi/fields"
	"reveille/httpapi/refusal"
	"reveille/httpapi/web"
)

const callbackPrefix = "/callback/"

// Store is what callbacks need of the store. Their token says what they may do, so they have no principal.
type Store interface {
	// Callback judges and processes a callback, by the transition of the same name (fsm/spec).
	Callback(ctx context.Context, cb fsm.Callback) (fsm.CallbackReply, error)
	// Hide hides the consumers of a primary stream that upstream reports as gone, until the stream is observed again.
	Hide(ctx context.Context, path string, a fsm.Absence) (fsm.Outcome, error)
}

// Streams watches streams.
type Streams interface {
	// Watch makes sure that streams are watched in the partition of a consumer's primary stream.
	Watch(primary string, paths []string)
}

// Upstream asks the stream server.
type Upstream interface {
	control.Upstream
	// HeadAnew is Head that waits for no other request, and shares none.
	HeadAnew(ctx context.Context, path string) (fsm.StreamInfo, error)
	fields.Offsets
}

// Config is what a face needs. All fields but Metrics and Tracer are required.
type Config struct {
	Control  *control.Service
	Store    Store
	Streams  Streams
	Upstream Upstream
	Tokens   *token.Tokens
	Bodies   web.Bodies
	Fields   fields.Reader
	// MaxStreams bounds how many streams a consumer may be subscribed to.
	MaxStreams int
	// HeadTimeout is how long a callback waits for one answer of upstream before it goes on without.
	HeadTimeout time.Duration
	// Refusal finds the answer to any error.
	Refusal func(error) *refusal.Error
	Metrics prometheus.Registerer
	Tracer  trace.TracerProvider
}

// Face answers the subscription API and the callbacks of woken workers. It is safe for concurrent use.
type Face struct {
	Config
	metrics *metrics
	traces  tracing
	// decoded is what was logged about callbacks with a decoded path.
	decoded throttle.Trouble
}

// New returns a face.
func New(cfg Config) *Face {
	return &Face{
		Config: cfg, metrics: newMetrics(cfg.Metrics),
		traces: tracing{span.New(cfg.Tracer, "reveille/httpapi")},
	}
}

// Resources are the resources of the API port.
func (f *Face) Resources() []web.Resource {
	table := []web.Resource{
		{
			Query: "subscription", Role: web.Anyone,
			Methods: web.Read(f.getSubscription).And(http.MethodPut, f.createSubscription).
				And(http.MethodPatch, f.changeSubscription).And(http.MethodDelete, f.deleteSubscription),
			Usage: "?subscription=ID names a subscription: PUT creates it, GET reads it, PATCH changes it, " +
				"DELETE deletes it; a write to a stream has no such query",
		},
		{
			Query: "subscriptions", Role: web.Anyone, Methods: web.Read(f.listSubscriptions),
			Usage: "GET with ?subscriptions lists subscriptions; ?subscription=ID names one of them",
		},
		{Path: isCallback, Role: web.Anyone, Methods: web.Post(f.callback), Usage: "a callback is a POST"},
		{Path: isBelowCallbacks, Role: web.Anyone, Methods: web.All(f.mangled)},
	}
	if f.Control.Consents != nil {
		table = append(table, web.Resource{
			Path: isConsent, Role: web.Anyone, Methods: web.Get(f.consent).And(http.MethodPost, f.consent),
			Usage: "a GET or a POST agrees to deliveries",
		})
	}
	return table
}

// isCallback says whether a path belongs to a callback: it has a consumer ID, which holds no slash, below the prefix.
func isCallback(raw string) bool {
	id, ok := strings.CutPrefix(raw, callbackPrefix)
	return ok && id != "" && !strings.Contains(id, "/")
}

func isBelowCallbacks(raw string) bool {
	canonical, _ := fsm.CanonicalPath(raw) // empty for a path that no stream can have
	return strings.HasPrefix(raw, callbackPrefix) || strings.HasPrefix(canonical, callbackPrefix)
}
