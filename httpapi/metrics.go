package httpapi

import (
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"reveille/httpapi/web"
)

// metrics are the metrics of the gateway.
type metrics struct {
	gateway         *prometheus.CounterVec
	gatewayDuration *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	return &metrics{
		gateway: f.NewCounterVec(prometheus.CounterOpts{
			Name: "reveille_gateway_requests_total",
			Help: "Requests that passed through the gateway, by kind (read: GET and HEAD; live: a read that waits " +
				"for events; write: PUT and POST; delete; other) and class of the stream server's status (none: it " +
				"did not answer; cancelled: the client did not wait for the answer).",
		}, []string{"kind", "status"}),
		gatewayDuration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "reveille_gateway_duration_seconds",
			Help: "Time from the arrival of a request at the gateway to the header of the stream server's response, " +
				"by kind. It includes what the gateway does before a write. For kind live, most of it is waiting for " +
				"an event.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"kind"}),
	}
}

// passed counts a request: by the status of the stream server's answer, or by the reason why there is none.
func (m *metrics) passed(ex *exchange, status int, reason string) {
	if reason == "" {
		reason = classes[min(max(status/100, 1), 5)]
		m.gatewayDuration.WithLabelValues(ex.kind).Observe(time.Since(ex.began).Seconds())
	}
	m.gateway.WithLabelValues(ex.kind, reason).Inc()
}

var classes = [6]string{1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}

// kindOf returns the kind that a request through the gateway counts as.
func kindOf(method string, u *url.URL) string {
	switch method {
	case http.MethodGet, http.MethodHead:
		if method == http.MethodGet && web.QueryHas(u.RawQuery, "live") {
			return "live"
		}
		return "read"
	case http.MethodPut, http.MethodPost:
		return "write"
	case http.MethodDelete:
		return "delete"
	}
	return "other"
}
