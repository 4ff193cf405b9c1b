package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"reveille/fsm"
	"reveille/fsm/throttle"
)

// askedFor are the causes that a client, a worker or an operator asked for. If many consumers are gone for one of them,
// not every one has a log line. A consumer that is lost for any other cause has one, because an operator may want it
// back.
var askedFor = []fsm.RemovalCause{fsm.RemovedSubscriptionDeleted, fsm.RemovedStreamDeleted, fsm.RemovedUnsubscribed}

// consumersGone tells operators which consumers are gone.
type consumersGone struct {
	log   *zap.Logger
	count map[fsm.RemovalCause]prometheus.Counter
	// asked limits the log lines about each cause in askedFor. left is for consumers that left dead letters with their
	// stream.
	asked map[fsm.RemovalCause]*throttle.Trouble
	left  throttle.Trouble
	// quarantined limits the log lines about consumers in quarantine.
	quarantined throttle.Trouble
}

func newConsumersGone(r prometheus.Registerer, log *zap.Logger) *consumersGone {
	removed := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "reveille_consumers_removed_total",
		Help: "Consumers that were removed, by cause (stream_deleted; stream_gone: the stream answered 404 for the " +
			"whole grace period; stream_recreated: the stream was recreated under its name, and a new consumer " +
			"replaces the old one; subscription_deleted; given_up: deliveries failed for too long; unsubscribed: the " +
			"worker unsubscribed from its last stream).",
	}, []string{"cause"})
	g := &consumersGone{
		log: log, count: map[fsm.RemovalCause]prometheus.Counter{}, asked: map[fsm.RemovalCause]*throttle.Trouble{},
	}
	for _, cause := range fsm.RemovalCauses {
		g.count[cause] = removed.WithLabelValues(string(cause))
	}
	for _, cause := range askedFor {
		g.asked[cause] = &throttle.Trouble{}
	}
	return g
}

// followed counts the consumers that an outcome says are gone, and logs them. It warns of those that were given up, and
// of those that left dead letters with their stream. A consumer in quarantine is an error.
func (g *consumersGone) followed(o fsm.Outcome, _ fsm.Sighting) {
	for _, c := range o.Removed {
		g.count[c.Cause].Inc()
		of := []zap.Field{
			zap.String("cause", string(c.Cause)), zap.String("subscription", c.Subscription),
			zap.String("stream", c.Primary), zap.String("consumer", c.Consumer),
			zap.String("acked", c.Acked.Value()),
		}
		if asked := g.asked[c.Cause]; asked != nil {
			consumers, log := asked.Happened(time.Now())
			if !log {
				continue
			}
			of = append(of, zap.Int("consumers", consumers))
		}
		if c.Cause == fsm.RemovedGivenUp {
			g.log.Warn("a consumer was given up: its deliveries have failed for too long", of...)
		} else {
			g.log.Info("a consumer is gone", of...)
		}
	}
	for _, q := range o.Quarantined {
		if consumers, log := g.quarantined.Happened(time.Now()); log {
			g.log.Error("a consumer is in quarantine: what redis has of it cannot be used",
				zap.String("consumer", q.Consumer), zap.String("reason", q.Reason), zap.Int("consumers", consumers))
		}
	}
	for _, l := range o.Left {
		if consumers, log := g.left.Happened(time.Now()); log {
			g.log.Warn("a stream is gone before all of it was pushed: dead letters tell of the rest",
				zap.String("cause", string(l.Cause)), zap.String("subscription", l.Subscription),
				zap.String("stream", l.Stream), zap.Int("dead_letters", l.Letters), zap.Int("consumers", consumers))
		}
	}
}

// wakesEnded counts wakes that did not end as they should.
type wakesEnded struct{ silent prometheus.Counter }

func newWakesEnded(r prometheus.Registerer) *wakesEnded {
	return &wakesEnded{promauto.With(r).NewCounter(prometheus.CounterOpts{
		Name: "reveille_wakes_silent_total",
		Help: "Wakes that a worker took and that ended because the worker sent nothing for " +
			"REVEILLE_LIVENESS_TIMEOUT: it crashed, its callbacks do not arrive, or it did not say done.",
	})}
}

func (w *wakesEnded) followed(o fsm.Outcome, _ fsm.Sighting) {
	for _, e := range o.Ended {
		if e.Cause == fsm.EndSilent {
			w.silent.Inc()
		}
	}
}
