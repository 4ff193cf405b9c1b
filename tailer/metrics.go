package tailer

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// mode is how a stream is watched. The zero mode counts nowhere.
type mode string

const (
	modeNone     mode = ""
	modeLive     mode = "live"
	modeSweep    mode = "sweep"
	modeHeadOnly mode = "head_only"
	modeAway     mode = "away"
	modeFailing  mode = "failing"
)

// newWatched returns the metric of the watched streams.
func newWatched(r prometheus.Registerer) *prometheus.GaugeVec {
	watched := promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "reveille_watched_streams",
		Help: "Streams that this replica watches, by mode (live: by a request that waits for events; sweep: by HEAD " +
			"now and then, because there are more than REVEILLE_TAIL_MAX_LIVE; head_only: by HEAD, because reading " +
			"would extend the stream's time to live; away: the stream server answers that the stream does not exist; " +
			"failing: requests for the stream fail).",
	}, []string{"mode"})
	for _, m := range []mode{modeLive, modeSweep, modeHeadOnly, modeAway, modeFailing} {
		watched.WithLabelValues(string(m)) // shown from the start
	}
	return watched
}

// newMissed returns the metric of the appends that upstream has missed.
func newMissed(r prometheus.Registerer) prometheus.Counter {
	return promauto.With(r).NewCounter(prometheus.CounterOpts{
		Name: "reveille_upstream_missed_appends_total",
		Help: "Live requests that the stream server did not answer although the stream had moved on, as a HEAD " +
			"showed. From the second one on, live requests are looked at sooner.",
	})
}

// show makes the metric show a mode. Only the goroutine of the watch calls it.
func (w *watch) show(m mode) {
	if w.shown == m {
		return
	}
	if w.shown != modeNone {
		w.t.watched.WithLabelValues(string(w.shown)).Dec()
	}
	if w.shown = m; m != modeNone {
		w.t.watched.WithLabelValues(string(m)).Inc()
	}
}
