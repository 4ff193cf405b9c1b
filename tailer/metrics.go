package tailer

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are what the tailer tells of itself.
type metrics struct {
	requests [kinds]requestMetrics
	modes    [modeCount]prometheus.Gauge
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
	kinds
)

var kindNames = [kinds]string{kindHead: "head", kindTail: "tail", kindRead: "read", kindRegistry: "registry"}

// outcome is what became of one.
type outcome int

const (
	outcomeOK outcome = iota
	outcomeMissing
	outcomeClientError
	outcomeServerError
	outcomeInvalid
	outcomeUnreachable
	outcomeTimeout
	outcomeCancelled
	outcomes
)

var outcomeNames = [outcomes]string{
	outcomeOK: "ok", outcomeMissing: "missing", outcomeClientError: "client_error", outcomeServerError: "server_error",
	outcomeInvalid: "invalid", outcomeUnreachable: "unreachable", outcomeTimeout: "timeout", outcomeCancelled: "cancelled",
}

// mode is how a stream is watched; the zero one counts nowhere.
type mode int

const (
	modeNone mode = iota
	modeLive
	modeSweep
	modeHeadOnly
	modeAway
	modeFailing
	modeCount
)

var modeNames = [modeCount]string{modeLive: "live", modeSweep: "sweep", modeHeadOnly: "head_only", modeAway: "away", modeFailing: "failing"}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	requests := f.NewCounterVec(prometheus.CounterOpts{
		Name: "reveille_upstream_requests_total",
		Help: "Requests of Reveille's own to the stream server that have ended, by kind (head: with its repetitions; tail: a live read that watches a " +
			"stream; read: a catch-up read; registry: a read of the registry stream) and outcome (ok; missing: 404 or 410; client_error: any other " +
			"status below 500; server_error; invalid: the answer breaks the protocol; unreachable: no answer; timeout; cancelled: not needed any more). " +
			"What passes through the gateway is not in it.",
	}, []string{"kind", "outcome"})
	duration := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "reveille_upstream_request_duration_seconds",
		Help: "Time until the header of the stream server's answer was there, by kind of request. Of kinds tail and registry most is waiting for an event. " +
			"Requests without an answer are not in it.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"kind"})
	watched := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "reveille_watched_streams",
		Help: "Streams that this replica watches, by mode (live: by a request that waits for events; sweep: by HEAD now and then, because there are more " +
			"than REVEILLE_TAIL_MAX_LIVE; head_only: by HEAD, because reading would extend the stream's time to live; away: the stream server says that " +
			"there is none; failing: requests for the stream fail).",
	}, []string{"mode"})
	m := &metrics{}
	for k := range kinds {
		m.requests[k].duration = duration.WithLabelValues(kindNames[k])
		for o := range outcomes {
			m.requests[k].outcomes[o] = requests.WithLabelValues(kindNames[k], outcomeNames[o])
		}
	}
	for n := modeLive; n < modeCount; n++ {
		m.modes[n] = watched.WithLabelValues(modeNames[n])
	}
	return m
}

// show has what the parts know shown.
func (t *Tailer) show(r prometheus.Registerer) {
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "reveille_upstream_up",
		Help: "0 while this replica takes the stream server as a whole for down, otherwise 1.",
	}, func() float64 {
		if t.health.isDown() {
			return 0
		}
		return 1
	})
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

// is notes the mode of a loop. Only the loop itself calls it.
func (w *watch) is(m mode) {
	if w.mode == m {
		return
	}
	if w.mode != modeNone {
		w.t.metrics.modes[w.mode].Dec()
	}
	if w.mode = m; m != modeNone {
		w.t.metrics.modes[m].Inc()
	}
}
