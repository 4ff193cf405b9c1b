package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics counts the requests to upstream.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// kind is what a request to upstream is for.
type kind string

const (
	kindHead     kind = "head"
	kindTail     kind = "tail"
	kindRead     kind = "read"
	kindRegistry kind = "registry"
	kindProbe    kind = "probe"
	kindPush     kind = "push"
	kindWrite    kind = "write"
)

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	m := &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "reveille_upstream_requests_total",
			Help: "Requests of Reveille's own to the stream server that have ended, by kind (head: including its " +
				"retries; tail: a live read that watches a stream; read: a catch-up read; registry: a read of the " +
				"registry stream; probe: a HEAD that finds out what the stream server is; push: a read of events to " +
				"deliver, which is left out for those that a live request has just shown; write: an append to " +
				"REVEILLE_EVENTS_STREAM or below REVEILLE_OUTBOX) and outcome (ok; missing: 404 " +
				"or 410; not_kept: an offset that is no longer kept; client_error: any other status below 500; " +
				"server_error; invalid: the response breaks the protocol; unreachable: no response; timeout; " +
				"cancelled: no longer needed). Requests that pass through the gateway are not included.",
		}, []string{"kind", "outcome"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "reveille_upstream_request_duration_seconds",
			Help: "Time until the header of the stream server's response arrived, by kind of request. For kinds tail " +
				"and registry, most of it is waiting for an event. Requests without a response are not included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"kind"}),
	}
	for _, k := range []kind{kindHead, kindTail, kindRead, kindRegistry, kindProbe, kindPush, kindWrite} {
		m.duration.WithLabelValues(string(k))
		for _, outcome := range []string{
			"ok", "missing", "not_kept", "client_error", "server_error", "invalid", "unreachable", "timeout",
			"cancelled",
		} {
			m.requests.WithLabelValues(string(k), outcome) // shown from the start
		}
	}
	return m
}

// ended counts a request that began at this time. Without an answer, status is 0. The error err is the request's, or
// says what is wrong with the answer.
func (m *metrics) ended(k kind, began time.Time, status int, err error) {
	if status != 0 {
		m.duration.WithLabelValues(string(k)).Observe(time.Since(began).Seconds())
	}
	m.requests.WithLabelValues(string(k), outcomeOf(status, err)).Inc()
}

// outcomeOf returns the outcome of a request.
func outcomeOf(status int, err error) string {
	var network net.Error
	switch {
	case errors.Is(err, ErrNotKept):
		return "not_kept"
	case status == http.StatusNotFound, status == http.StatusGone:
		return "missing"
	case status >= 500:
		return "server_error"
	case status >= 300:
		return "client_error"
	case status != 0 && err != nil:
		return "invalid"
	case status != 0:
		return "ok"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	}
	return "unreachable"
}
