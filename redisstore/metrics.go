package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"reveille/fsm"
)

// metrics are the store's metrics of its own work.
type metrics struct {
	calls                           map[string]*callMetrics
	replicasLost, subscriptionsLost prometheus.Counter
}

// callMetrics are the metrics of one script.
type callMetrics struct {
	duration             prometheus.Observer
	unavailable, refused prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	duration := f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "reveille_redis_script_duration_seconds",
		Help: "Duration of calls to Redis, including both ways over the network, by the Lua script that was called. " +
			"Calls for several partitions that are sent together (next_due, lease, census) count as one.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"script"})
	failures := f.NewCounterVec(prometheus.CounterOpts{
		Name: "reveille_redis_script_errors_total",
		Help: "Calls to Redis that failed, by script and kind (unavailable: Redis could not be reached or could not " +
			"answer; refused: anything else).",
	}, []string{"script", "kind"})
	m := &metrics{
		calls: map[string]*callMetrics{},
		replicasLost: f.NewCounter(prometheus.CounterOpts{
			Name: "reveille_replicas_lost_total",
			Help: "Replicas that have ended without saying so, or cannot reach Redis, as this replica has found. A " +
				"stop is not counted, nor is an outage of Redis. Each of the other replicas counts it: use the " +
				"maximum over the replicas.",
		}),
		subscriptionsLost: f.NewCounter(prometheus.CounterOpts{
			Name: "reveille_subscriptions_lost_total",
			Help: "Subscriptions that Redis has lost, as this replica has found. Deleted ones are not counted. Each " +
				"replica counts them: use the maximum over the replicas.",
		}),
	}
	for _, s := range scripts {
		m.calls[s.name] = &callMetrics{
			duration:    duration.WithLabelValues(s.name),
			unavailable: failures.WithLabelValues(s.name, "unavailable"),
			refused:     failures.WithLabelValues(s.name, "refused"),
		}
	}
	return m
}

// called counts a call that began at a time and ended with err.
func (m *metrics) called(s *script, began time.Time, err error) {
	c := m.calls[s.name]
	c.duration.Observe(time.Since(began).Seconds())
	switch {
	case err == nil, errors.Is(err, context.Canceled): // the caller no longer wants the answer
	case errors.Is(err, fsm.ErrUnavailable):
		c.unavailable.Inc()
	default:
		c.refused.Inc()
	}
}

const (
	// censusAge is how old the figures of a scrape may be. If counting is slow, they may get older, so that counting
	// takes at most a hundredth of the time. They never get older than censusOld, because alerts are made of them.
	censusAge = 3 * time.Second
	censusOld = 30 * time.Second
	// countMax is how many sets are counted at most. Each subscription has one set in each owned partition.
	countMax = 200_000
	// countAtATime is how many sets one call of census.lua counts.
	countAtATime = 1000
)

// figures are what the metrics say about the owned partitions.
type figures struct {
	up                      bool
	asked                   int
	waiting, aside, retired int64
	live, givenUp, all      int64
	known, dead             int64
	quarantined             int64
	// counted is false if there were too many subscriptions to count their consumers.
	counted bool
	// oldest is how long the oldest wake has waited. overdue is how long ago the oldest deadline passed.
	oldest, overdue time.Duration
}

// census is the collector of the figures that Redis counts for a scrape.
type census struct {
	s *Store

	consumers, oldest, overdue, known, dead, up, subs, paused, partitions, owned, replicas *prometheus.Desc

	mu    sync.Mutex
	last  figures
	until time.Time
	// The figures in last are for the partitions in of, and for this version of the list of subscriptions.
	of      string
	version int64
}

func newCensus(s *Store) *census {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &census{
		s: s,
		consumers: describe("reveille_consumers", "Consumers in the partitions that this replica owns, by state "+
			"(waking: a wake is being delivered; aside: a failed push that is retried by itself, where the ordering "+
			"is none; retired: either of these, but the endpoint answered 410 and the subscription was not resumed; "+
			"live: its worker is working; given_up: deliveries failed "+
			"for too long, the next event or a resumption wakes it; quarantined: its record in Redis cannot be read; "+
			"idle: none of these). The sum over the "+
			"replicas is the total. Idle is left out if there are more than 200,000 pairs of a subscription and an "+
			"owned partition.", "state"),
		oldest: describe("reveille_oldest_pending_wake_seconds", "Age of the oldest wake among the consumers in "+
			"state waking in the partitions that this replica owns: since Redis was told of the event, since the end "+
			"of the previous wake if the consumer was busy, or since it was resumed. 0 if there is none. "+
			"Consumers that got a 410 and those aside do not count: they wait for an operator, or hold up nothing, "+
			"and would hide the others. Those of a stopped subscription do (reveille_subscriptions_paused). "+
			"Alert on the maximum over the replicas."),
		overdue: describe("reveille_overdue_seconds", "For how long the oldest deadline has passed that nothing has "+
			"acted on, in the partitions that this replica owns: an attempt that is due, a wake without an answer, a "+
			"worker that has fallen silent. 0 if there is none. What waits for an endpoint is not due. It grows if "+
			"replicas or Redis do not keep up. Alert on the maximum over the replicas."),
		known: describe("reveille_streams_known", "Streams that discovery has found in the partitions that this "+
			"replica owns, including streams that do not exist yet. The sum over the replicas is the total."),
		dead: describe("reveille_dead_letters", "Dead letters in the partitions that this replica owns: deliveries of "+
			"events that are not tried again, what was yet to be pushed of streams that are gone, and consumers that "+
			"are given up. The sum over the replicas is the total."),
		up: describe("reveille_redis_up", "1 if Redis answered for all partitions that this replica owns when "+
			"these metrics were collected, otherwise 0."),
		subs: describe("reveille_subscriptions", "Subscriptions that this replica knows: the same number on "+
			"each replica."),
		paused: describe("reveille_subscriptions_paused", "Subscriptions whose deliveries wait until an operator "+
			"resumes them: the same number on each replica."),
		partitions: describe("reveille_partitions", "Partitions of the database: the same number on each replica."),
		owned: describe("reveille_partitions_owned", "Partitions that this replica owns: it watches their "+
			"streams and acts on their deadlines."),
		replicas: describe("reveille_replicas", "Live replicas, as this one last read from Redis."),
	}
}

// Describe implements prometheus.Collector.
func (c *census) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.consumers, c.oldest, c.overdue, c.known, c.dead, c.up, c.subs, c.paused, c.partitions, c.owned, c.replicas,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It leaves out what Redis did not answer, and guesses nothing.
func (c *census) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	subs, paused := c.s.catalog.All(), 0
	for i := range subs {
		if subs[i].Stopped() {
			paused++
		}
	}
	gauge(c.subs, float64(len(subs)))
	gauge(c.paused, float64(paused))
	gauge(c.partitions, float64(c.s.keys.partitions))
	gauge(c.owned, float64(len(c.s.ownership.Partitions())))
	gauge(c.replicas, float64(c.s.replicas.count.Load()))
	f := c.figures()
	up := 0.0
	if f.up {
		up = 1
	}
	gauge(c.up, up)
	if !f.up && f.asked == 0 {
		return
	}
	gauge(c.consumers, float64(f.waiting), "waking")
	gauge(c.consumers, float64(f.aside), "aside")
	gauge(c.consumers, float64(f.retired), "retired")
	gauge(c.consumers, float64(f.live), "live")
	gauge(c.consumers, float64(f.givenUp), "given_up")
	gauge(c.consumers, float64(f.quarantined), "quarantined")
	if f.counted {
		gauge(c.consumers, float64(max(0, f.all-f.waiting-f.aside-f.retired-f.live-f.givenUp-f.quarantined)), "idle")
	}
	gauge(c.known, float64(f.known))
	gauge(c.dead, float64(f.dead))
	gauge(c.oldest, f.oldest.Seconds())
	gauge(c.overdue, f.overdue.Seconds())
}

// figures returns recent figures, or counts again. One scrape counts at a time, and other scrapes wait for it.
func (c *census) figures() figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	owned, began := c.s.ownership.Partitions(), time.Now()
	if key := partitionKey(owned); began.After(c.until) || key != c.of || c.s.catalog.Version() != c.version {
		c.of, c.version = key, c.s.catalog.Version()
		c.last = c.s.count(owned)
		c.until = time.Now().Add(lasts(c.last, time.Since(began)))
	}
	return c.last
}

// lasts is how long figures are good, by how long it took to count them. Incomplete figures say nothing about the cost
// of counting, and must not outlast the outage.
func lasts(f figures, took time.Duration) time.Duration {
	if !f.up {
		return censusAge
	}
	return min(max(censusAge, 100*took), censusOld)
}

func partitionKey(partitions []int) string {
	var b strings.Builder
	for _, p := range partitions {
		b.WriteRune(rune(p))
	}
	return b.String()
}

// count asks Redis for the figures of some partitions.
func (s *Store) count(partitions []int) figures {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.limits.census)
	defer cancel()
	if len(partitions) == 0 {
		return figures{up: s.Ping(ctx) == nil, counted: true}
	}
	subs := s.catalog.All()
	f := figures{up: true, counted: len(subs)*len(partitions) <= countMax}
	batches := [][]any{nil}
	if f.counted {
		for i, sub := range subs {
			if i > 0 && i%countAtATime == 0 {
				batches = append(batches, nil)
			}
			last := &batches[len(batches)-1]
			*last = append(*last, sub.ID, sub.Generation)
		}
	}
	n := len(batches)
	for i, r := range s.pipeline(ctx, scriptCensus, len(partitions)*n, func(i int) ([]string, []any) {
		p := partitions[i/n]
		return s.keys.guard(p), s.arguments(p, batches[i%n]...)
	}) {
		waiting, aside, retired, live, givenUp, all, known, waited, dead, apart, overdue :=
			r.int(), r.int(), r.int(), r.int(), r.int(), r.int(), r.int(), r.int(), r.int(), r.int(), r.int()
		if r.bad != nil {
			f.up = false
			continue
		}
		f.all += all
		if i%n > 0 { // the other items are of the whole partition: its first batch adds them
			continue
		}
		f.asked++
		f.givenUp, f.quarantined = f.givenUp+givenUp, f.quarantined+apart
		f.waiting, f.aside, f.retired = f.waiting+waiting, f.aside+aside, f.retired+retired
		f.live, f.known, f.dead = f.live+live, f.known+known, f.dead+dead
		f.oldest = max(f.oldest, time.Duration(waited)*time.Millisecond)
		f.overdue = max(f.overdue, time.Duration(overdue)*time.Millisecond)
	}
	return f
}
