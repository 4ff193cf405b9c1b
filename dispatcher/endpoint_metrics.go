package dispatcher

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reveille/fsm/cache"
)

// endpointTroubles shows for how long an endpoint has taken nothing, for each subscription in trouble. It is a
// collector: it shows the list of endpoints that the store keeps, with their present age.
type endpointTroubles struct {
	store interface {
		Endpoints() *cache.Endpoints
		Catalog() *cache.Catalog
	}
	// most is how many subscriptions have series of their own.
	most int
	desc *prometheus.Desc
}

func newEndpointTroubles(store Store, most int) *endpointTroubles {
	return &endpointTroubles{store: store, most: most, desc: prometheus.NewDesc("reveille_endpoint_trouble_seconds",
		"For how long the endpoint of a subscription has taken no delivery, since the first that failed, by "+
			"subscription (the first 1000) and condition (down: one delivery at a time finds out whether that "+
			"goes on; "+
			"refusing: it has refused the latest for good; asked_to_wait: it gets none for a while; failing: the "+
			"latest is tried again). There is no series while it takes what it gets. The same on each replica.",
		[]string{"subscription", "condition"}, nil)}
}

// Describe implements prometheus.Collector.
func (t *endpointTroubles) Describe(ch chan<- *prometheus.Desc) { ch <- t.desc }

// Collect implements prometheus.Collector.
func (t *endpointTroubles) Collect(ch chan<- prometheus.Metric) {
	shown := 0
	for _, sub := range t.store.Catalog().All() {
		e := t.store.Endpoints().Of(sub)
		if sub.Paused || e.Since.IsZero() {
			continue
		}
		if shown++; shown > t.most {
			return
		}
		took := max(e.Now.Sub(e.Since), time.Millisecond)
		ch <- prometheus.MustNewConstMetric(
			t.desc, prometheus.GaugeValue, took.Seconds(), sub.ID, string(e.Condition()))
	}
}

// countAskedToWait counts the subscriptions whose endpoint has asked to wait.
func (d *Dispatcher) countAskedToWait() (n int) {
	for _, sub := range d.cfg.Store.Catalog().All() {
		if e := d.cfg.Store.Endpoints().Of(sub); e.AskedToWait(e.Now) {
			n++
		}
	}
	return n
}
