package dispatcher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"reveille/fsm"
)

const (
	// maxLabels is how many subscriptions have series of their own at a time; those beyond share otherLabel, and go on doing so until
	// they have nothing under way and are deleted or the program ends.
	maxLabels  = 1000
	otherLabel = "_other"
)

// metrics are what the dispatcher tells of itself. Those by subscription are guarded by the Dispatcher's mutex.
type metrics struct {
	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec
	retries  prometheus.Histogram
	// delay is by how the wake's event was seen: through the gateway, or by watching.
	delayGateway, delayTail prometheus.Observer
	dropped, lost           prometheus.Counter

	most   int
	labels map[string]*laneMetrics
}

// laneMetrics are those of one subscription, or of all that share otherLabel.
type laneMetrics struct {
	label    string
	lanes    int
	attempts [results][statuses]prometheus.Counter
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
		return status5xx // no status of HTTP
	}
	return noStatus
}

var (
	outcomeNames = [results]string{failed: "failed", retired: "retired", accepted: "accepted", done: "done", abandoned: "abandoned"}
	statusNames  = [statuses]string{noStatus: "none", status2xx: "2xx", status3xx: "3xx", status4xx: "4xx", status5xx: "5xx"}
)

func newMetrics(r prometheus.Registerer, most int) *metrics {
	f := promauto.With(r)
	delay := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "reveille_append_to_wake_seconds",
		Help: "Time from when this replica saw an event to when it began to send the first attempt of the wake that the event set off, waiting " +
			"for a free slot included. Source gateway: from when the stream server had answered the append that passed through the gateway. " +
			"Source tail: from when an answer of the stream server showed the new tail; how long that came after the append is not known. " +
			"Wakes of consumers that were busy when the event came, and of events that another replica saw, are not in it.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"source"})
	return &metrics{
		attempts: f.NewCounterVec(prometheus.CounterOpts{
			Name: "reveille_delivery_attempts_total",
			Help: "Delivery attempts that have ended, by subscription (_other: those beyond the first 1000), outcome (accepted: a 2xx; done: a 2xx " +
				"that said done; failed: to be retried; retired: a 410; abandoned: cut off because this program stopped) and class of the status " +
				"(none: there was no answer).",
		}, []string{"subscription", "outcome", "status"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "reveille_delivery_duration_seconds",
			Help: "Time from the beginning of a delivery attempt to the end of a 2xx answer, or to the status of another, or to the failure, by " +
				"subscription (_other: those beyond the first 1000).",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"subscription"}),
		retries: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "reveille_wake_retries",
			Help:    "Retries that it took until an attempt of a wake was answered with a 2xx: 0 if the first one was.",
			Buckets: []float64{0, 1, 2, 3, 5, 8, 10, 15, 30, 100, 1000},
		}),
		delayGateway: delay.WithLabelValues("gateway"),
		delayTail:    delay.WithLabelValues("tail"),
		dropped: f.NewCounter(prometheus.CounterOpts{
			Name: "reveille_wakes_dropped_total",
			Help: "Attempts that were left to their deadlines, because as many wakes as may were waiting already.",
		}),
		lost: f.NewCounter(prometheus.CounterOpts{
			Name: "reveille_delivery_results_lost_total",
			Help: "Delivery attempts whose result Redis did not take in time; their deadlines decide.",
		}),
		most: most, labels: map[string]*laneMetrics{},
	}
}

// watch has the numbers of requests and wakes shown.
func (d *Dispatcher) watch(r prometheus.Registerer) {
	f := promauto.With(r)
	gauge := func(name, help string, value func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			d.mu.Lock()
			defer d.mu.Unlock()
			return float64(value())
		})
	}
	gauge("reveille_webhook_requests_in_flight", "Webhook requests that are open.", func() int { return d.slots.inFlight })
	gauge("reveille_webhook_requests_in_flight_limit", "Most webhook requests that may be open at once.", func() int { return d.slots.total })
	gauge("reveille_wakes_queued", "Wakes that wait in memory until a webhook request may be opened.",
		func() int { return len(d.slots.queued) + len(d.strangers) })
}

// of returns the metrics of a subscription for one more lane.
func (m *metrics) of(subscription string) *laneMetrics {
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

// forget is for a lane that is no more. The series of a subscription end with its last one.
func (m *metrics) forget(l *laneMetrics) {
	if l.lanes--; l.lanes > 0 {
		return
	}
	delete(m.labels, l.label)
	m.duration.DeleteLabelValues(l.label)
	// One by one: to look for them among all would hold up every delivery when many subscriptions are deleted at once.
	for r := range l.attempts {
		for class, counter := range l.attempts[r] {
			if counter != nil {
				m.attempts.DeleteLabelValues(l.label, outcomeNames[r], statusNames[class])
			}
		}
	}
}

// ended counts an attempt.
func (m *metrics) ended(l *laneMetrics, w fsm.Wake, a answer) {
	class := classOf(a.status)
	counter := l.attempts[a.result][class]
	if counter == nil {
		counter = m.attempts.WithLabelValues(l.label, outcomeNames[a.result], statusNames[class])
		l.attempts[a.result][class] = counter
	}
	counter.Inc()
	if a.result == abandoned {
		return
	}
	l.duration.Observe(a.took.Seconds())
	if a.ok() {
		m.retries.Observe(float64(w.Attempt - 1))
	}
}

// sends is: an attempt is sent now.
func (m *metrics) sends(w fsm.Wake) {
	if w.Attempt != 1 || w.Seen.At.IsZero() {
		return
	}
	delay := m.delayTail
	if w.Seen.Gateway {
		delay = m.delayGateway
	}
	delay.Observe(time.Since(w.Seen.At).Seconds())
}
