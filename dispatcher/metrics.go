package dispatcher

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"reveille/fsm"
)

const (
	// maxLabels is how many subscriptions have series of their own at a time. Later ones share otherLabel until the
	// program ends, or until they have nothing under way and are deleted.
	maxLabels  = 1000
	otherLabel = "_other"
)

// metrics are what the dispatcher shows about itself. For delivery attempts, they are an observer.
type metrics struct {
	attempts *prometheus.CounterVec
	failures *prometheus.CounterVec
	blocked  *prometheus.CounterVec
	duration *prometheus.HistogramVec
	retries  prometheus.Histogram
	// delayGateway and delayTail are for the two ways to see a wake's event: through the gateway, or by watching.
	delayGateway, delayTail          prometheus.Observer
	dropped, lost, filtered, notKept prometheus.Counter
	asks                             *prometheus.CounterVec

	most int

	mu     sync.Mutex
	labels map[string]*laneMetrics
}

// laneMetrics are the metrics of one subscription, or of all subscriptions that share otherLabel.
type laneMetrics struct {
	label    string
	lanes    int
	attempts [fsm.AttemptResults][statuses]prometheus.Counter
	duration prometheus.Observer
}

// status is the class of an answer.
type status int

const (
	noStatus status = iota
	status2xx
	status3xx
	status4xx
	status5xx
	statuses
)

func classOf(code int) status {
	switch {
	case code >= 200 && code <= 599:
		return status(code/100) - 1
	case code != 0:
		return status5xx // not an HTTP status
	}
	return noStatus
}

var statusNames = [statuses]string{
	noStatus: "none", status2xx: "2xx", status3xx: "3xx", status4xx: "4xx", status5xx: "5xx",
}

func newMetrics(r prometheus.Registerer, most int) *metrics {
	f := promauto.With(r)
	delay := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "reveille_append_to_wake_seconds",
		Help: "Time from when this replica saw an event until it started to send the first attempt of the wake that " +
			"the event caused, including the wait for a free slot. Source gateway: starts when the stream server had " +
			"answered the append that passed through the gateway. Source tail: starts when a response of the stream " +
			"server showed the new tail; how long after the append that was is not known. Wakes of consumers that " +
			"were busy when the event came, and wakes for events that another replica saw, are not included.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"source"})
	return &metrics{
		attempts: f.NewCounterVec(prometheus.CounterOpts{
			Name: "reveille_delivery_attempts_total",
			Help: "Delivery attempts that have ended, by subscription (_other: those beyond the first 1000), outcome " +
				"(accepted: a 2xx; done: a 2xx that said done, or took the events; failed: to be retried; retired: a " +
				"410; abandoned: cut off because this program stopped; empty: not made, because there was no event " +
				"to bring; blocked: not made, because the delivery waits; dead: the events are not tried again) and " +
				"class of the status (none: there was no answer).",
		}, []string{"subscription", "outcome", "status"}),
		blocked: f.NewCounterVec(prometheus.CounterOpts{
			Name: "reveille_deliveries_blocked_total",
			Help: "Delivery attempts with the outcome blocked, by reason (dispatcher/WAITING.md has the reasons).",
		}, []string{"reason"}),
		failures: f.NewCounterVec(prometheus.CounterOpts{
			Name: "reveille_delivery_failures_total",
			Help: "Delivery attempts that have failed, by class. Answers: redirect: 3xx; client_error: 4xx except " +
				"410 and 429; gone: 410; rate_limited: 429; server_error: 5xx except 503; unavailable: 503; " +
				"invalid_status: any other status. No answer: timeout; dns: the host name does not resolve; tls: the " +
				"handshake failed or the certificate is not valid; connection: it was refused, reset or closed; " +
				"proxy: the operator's proxy answered itself, or cannot be reached; " +
				"prohibited: the settings do not allow the target; too_many_open_files: on this machine; other. Not " +
				"made: unknown_format; upstream: the events could not be read; too_large or too_deep: the event is; " +
				"not_kept: the stream server has dropped the events; not_built: no request can be made of them; " +
				"not_json: the subscription has a filter, and the stream is not JSON.",
		}, []string{"class"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "reveille_delivery_duration_seconds",
			Help: "Time from the start of a delivery attempt to the end of a 2xx answer, to the status line of any " +
				"other answer, or to the failure, by subscription (_other: those beyond the first 1000).",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"subscription"}),
		retries: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "reveille_wake_retries",
			Help:    "Retries until an attempt of a wake was answered with a 2xx: 0 if the first one was.",
			Buckets: []float64{0, 1, 2, 3, 5, 8, 10, 15, 30, 100, 1000},
		}),
		delayGateway: delay.WithLabelValues("gateway"),
		delayTail:    delay.WithLabelValues("tail"),
		dropped: f.NewCounter(prometheus.CounterOpts{
			Name: "reveille_wakes_dropped_total",
			Help: "Delivery attempts that were not queued because the queue was full. They are given back, " +
				"and are made some seconds later.",
		}),
		lost: f.NewCounter(prometheus.CounterOpts{
			Name: "reveille_delivery_results_lost_total",
			Help: "Delivery attempts whose result could not be stored in Redis in time. Their deadlines decide what " +
				"happens next.",
		}),
		filtered: f.NewCounter(prometheus.CounterOpts{
			Name: "reveille_events_filtered_total",
			Help: "Events of push subscriptions that were passed over, because a filter leaves them out. Those " +
				"that are read again, for a retry or after an error, count again.",
		}),
		notKept: f.NewCounter(prometheus.CounterOpts{
			Name: "reveille_events_not_kept_total",
			Help: "Events of push subscriptions that the stream server dropped before they were pushed. " +
				"The deliveries go on behind them. Only servers that number their events show how many there were " +
				"(AnyCable).",
		}),
		asks: f.NewCounterVec(prometheus.CounterOpts{
			Name: "reveille_consent_requests_total",
			Help: "Requests for consent to deliveries, by what came of them (granted, refused or unsupported; " +
				"pending: an answer that says neither; lost: no answer of the endpoint).",
		}, []string{"result"}),
		most: most, labels: map[string]*laneMetrics{},
	}
}

// asked counts a request for consent.
func (m *metrics) asked(a fsm.ConsentAnswer) {
	result := string(a.State)
	if a.Lost {
		result = "lost"
	}
	m.asks.WithLabelValues(result).Inc()
}

// watch registers the gauges of requests, wakes and endpoints.
func (d *Dispatcher) watch(r prometheus.Registerer) {
	f := promauto.With(r)
	if r != nil {
		r.MustRegister(newEndpointTroubles(d.cfg.Store, d.metrics.most), consentGauge{d})
	}
	endpoints := func(name, help string, count func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(count()) })
	}
	endpoints("reveille_endpoints_asked_to_wait", "Subscriptions whose endpoint gets nothing for a while, because the "+
		"same scheme, host and port has answered a delivery of any replica with a Retry-After: the same number on "+
		"each replica.",
		d.countAskedToWait)
	endpoints("reveille_endpoints_down", "Endpoints of push subscriptions that are down: the last deliveries of all "+
		"replicas have failed, and one at a time finds out whether that goes on. The same number on each replica.",
		d.cfg.Store.Endpoints().Down)
	gauge := func(name, help string, value func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			d.mu.Lock()
			defer d.mu.Unlock()
			return float64(value())
		})
	}
	gauge("reveille_webhook_requests_in_flight", "Webhook requests that are open.",
		func() int { return d.slots.inFlight })
	gauge("reveille_webhook_requests_in_flight_limit", "Maximum number of webhook requests that may be open at once.",
		func() int { return d.slots.total })
	gauge("reveille_wakes_queued", "Wakes that wait in memory for a free webhook request.",
		func() int { return len(d.slots.queued) + len(d.unlisted) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "reveille_deliveries_waiting_for_rate",
		Help: "Deliveries that wait in memory until the rate of their endpoint or subscription allows them.",
	}, func() float64 {
		d.rates.mu.Lock()
		defer d.rates.mu.Unlock()
		return float64(d.rates.waiting)
	})
}

// of returns the metrics of a subscription, for one more lane.
func (m *metrics) of(subscription string) *laneMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	label := subscription
	l := m.labels[label]
	if l == nil && len(m.labels) >= m.most {
		label = otherLabel
		l = m.labels[label]
	}
	if l == nil {
		l = &laneMetrics{label: label, duration: m.duration.WithLabelValues(label)}
		m.labels[label] = l
	}
	l.lanes++
	return l
}

// forget ends the use by a lane. The series of a subscription end with its last lane.
func (m *metrics) forget(l *laneMetrics) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.lanes--; l.lanes > 0 {
		return
	}
	delete(m.labels, l.label)
	m.duration.DeleteLabelValues(l.label)
	// Delete them one by one. A search among all series would delay every delivery when many subscriptions are deleted
	// at once.
	for r := range l.attempts {
		for class, counter := range l.attempts[r] {
			if counter != nil {
				m.attempts.DeleteLabelValues(l.label, fsm.AttemptResult(r).String(), statusNames[class])
			}
		}
	}
}

// attempted is the Attempt of an router.Observer. The subscription has a lane, because the attempt holds a slot of it.
func (m *metrics) attempted(a fsm.Attempt) {
	if a.Class != "" {
		m.failures.WithLabelValues(a.Class).Inc()
	}
	if a.Blocked != "" {
		m.blocked.WithLabelValues(string(a.Blocked)).Inc()
	}
	if a.Result.OK() {
		m.retries.Observe(float64(a.Delivery.Attempt - 1))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.labels[a.Delivery.Subscription]
	if l == nil {
		l = m.labels[otherLabel]
	}
	class := classOf(a.Status)
	counter := l.attempts[a.Result][class]
	if counter == nil {
		counter = m.attempts.WithLabelValues(l.label, a.Result.String(), statusNames[class])
		l.attempts[a.Result][class] = counter
	}
	counter.Inc()
	if a.Tells() {
		l.duration.Observe(a.Took.Seconds())
	}
}

// sends observes the delay from an event to the first attempt of its wake, which is sent now.
func (m *metrics) sends(w fsm.Delivery) {
	if w.Attempt != 1 || w.Seen.At.IsZero() {
		return
	}
	delay := m.delayTail
	if w.Seen.Gateway {
		delay = m.delayGateway
	}
	delay.Observe(time.Since(w.Seen.At).Seconds())
}
