package tailer

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are what the tailer tells of itself.
type metrics struct {
	modes [modeCount]prometheus.Gauge
}

// mode is how a stream is watched; the zero one counts nowhere.
type mode uint8

const (
	modeNone mode = iota
	modeLive
	modeSweep
	modeHeadOnly
	modeAway
	modeFailing
	modeCount
)

var modeNames = [modeCount]string{
	modeLive: "live", modeSweep: "sweep", modeHeadOnly: "head_only", modeAway: "away", modeFailing: "failing",
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	watched := f.NewGaugeVec(prometheus.GaugeOpts{
		Name: "reveille_watched_streams",
		Help: "Streams that this replica watches, by mode (live: by a request that waits for events; sweep: by HEAD " +
			"now and then, because there are more than REVEILLE_TAIL_MAX_LIVE; head_only: by HEAD, because reading " +
			"would extend the stream's time to live; away: the stream server answers that the stream does not exist; " +
			"failing: requests for the stream fail).",
	}, []string{"mode"})
	m := &metrics{}
	for n := modeLive; n < modeCount; n++ {
		m.modes[n] = watched.WithLabelValues(modeNames[n])
	}
	return m
}

// show has the metrics show a mode. Only the goroutine of the watch calls it.
func (w *watch) show(m mode) {
	if w.shown == m {
		return
	}
	if w.shown != modeNone {
		w.t.metrics.modes[w.shown].Dec()
	}
	if w.shown = m; m != modeNone {
		w.t.metrics.modes[m].Inc()
	}
}
