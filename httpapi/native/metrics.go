package native

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"reveille/fsm"
)

// codeOK is the code that a successful callback counts as.
const codeOK fsm.Code = "OK"

// metrics are the metrics of callbacks.
type metrics struct {
	callbacks        *prometheus.CounterVec
	callbackDuration prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	m := &metrics{
		callbacks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "reveille_callbacks_total",
			Help: "Callbacks of workers that were answered, by code (OK, or the code of the error: INVALID_REQUEST, " +
				"TOKEN_INVALID, TOKEN_EXPIRED, STALE_EPOCH, ALREADY_CLAIMED, INVALID_OFFSET, CONSUMER_GONE, " +
				"BODY_TOO_LARGE, UNAVAILABLE, INTERNAL).",
		}, []string{"code"}),
		callbackDuration: f.NewHistogram(prometheus.HistogramOpts{
			Name: "reveille_callback_duration_seconds",
			Help: "Duration of callbacks from the end of their header to the answer, including the arrival of " +
				"their body.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
		}),
	}
	for _, code := range []fsm.Code{
		codeOK, fsm.CodeInvalidRequest, fsm.CodeTokenExpired, fsm.CodeTokenInvalid, fsm.CodeAlreadyClaimed,
		fsm.CodeInvalidOffset,
		fsm.CodeStaleEpoch, fsm.CodeConsumerGone, fsm.CodeUnavailable, fsm.CodeInternal,
	} {
		m.callbacks.WithLabelValues(string(code))
	}
	return m
}

// calledBack counts a callback.
func (m *metrics) calledBack(began time.Time, code fsm.Code) {
	m.callbacks.WithLabelValues(string(code)).Inc()
	m.callbackDuration.Observe(time.Since(began).Seconds())
}
