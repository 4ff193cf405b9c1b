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

// metrics are of the requests to upstream.
type metrics struct {
	requests [kinds]requestMetrics
}

// requestMetrics are those of one kind of request to upstream.
type requestMetrics struct {
	outcomes [outcomes]prometheus.Counter
	duration prometheus.Observer
}

// kind is what a request to upstream is for.
type kind int

const (
	kindHead kind = iota
	kindTail
	kindRead
	kindRegistry
	kindProbe
	kinds
)

var kindNames = [kinds]string{
	kindHead: "head", kindTail: "tail", kindRead: "read", kindRegistry: "registry", kindProbe: "probe",
}

// outcome is what became of one.
type outcome int

const (
	outcomeOK outcome = iota
	outcomeMissing
	outcomeNotKept
	outcomeClientError
	outcomeServerError
	outcomeInvalid
	outcomeUnreachable
	outcomeTimeout
	outcomeCancelled
	outcomes
)

var outcomeNames = [outcomes]string{
	outcomeOK: "ok", outcomeMissing: "missing", outcomeNotKept: "not_kept", outcomeClientError: "client_error",
	outcomeServerError: "server_error", outcomeInvalid: "invalid", outcomeUnreachable: "unreachable",
	outcomeTimeout: "timeout", outcomeCancelled: "cancelled",
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	requests := f.NewCounterVec(prometheus.CounterOpts{
		Name: "reveille_upstream_requests_total",
		Help: "Requests of Reveille's own to the stream server that have ended, by kind (head: including its " +
			"retries; tail: a live read that watches a stream; read: a catch-up read; registry: a read of the " +
			"registry stream; probe: a HEAD that finds out what the stream server is) and outcome (ok; missing: " +
			"404 or 410; not_kept: an offset that is no longer kept; client_error: any other status below 500; " +
			"server_error; invalid: the response breaks the protocol; unreachable: no response; timeout; cancelled: " +
			"no longer needed). Requests that pass through the gateway are not included.",
	}, []string{"kind", "outcome"})
	duration := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "reveille_upstream_request_duration_seconds",
		Help: "Time until the header of the stream server's response arrived, by kind of request. For kinds tail and " +
			"registry, most of it is waiting for an event. Requests without a response are not included.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"kind"})
	m := &metrics{}
	for k := range kinds {
		m.requests[k].duration = duration.WithLabelValues(kindNames[k])
		for o := range outcomes {
			m.requests[k].outcomes[o] = requests.WithLabelValues(kindNames[k], outcomeNames[o])
		}
	}
	return m
}

// ended counts a request that was begun at a time. status is 0 without an answer; err is what is wrong otherwise.
func (m *metrics) ended(k kind, began time.Time, status int, err error) {
	r := &m.requests[k]
	if status != 0 {
		r.duration.Observe(time.Since(began).Seconds())
	}
	r.outcomes[outcomeOf(status, err)].Inc()
}

func outcomeOf(status int, err error) outcome {
	var network net.Error
	switch {
	case errors.Is(err, ErrNotKept):
		return outcomeNotKept
	case status == http.StatusNotFound, status == http.StatusGone:
		return outcomeMissing
	case status >= 500:
		return outcomeServerError
	case status >= 300:
		return outcomeClientError
	case status != 0 && err != nil:
		return outcomeInvalid
	case status != 0:
		return outcomeOK
	case errors.Is(err, context.Canceled):
		return outcomeCancelled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return outcomeTimeout
	}
	return outcomeUnreachable
}
