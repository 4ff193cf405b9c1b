package main

import (
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// scrapesMax is how many requests for the metrics are answered at a time; more are answered 503.
const scrapesMax = 8

// registry is what the parts register their metrics with, and the metrics page is made from.
type registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// newRegistry returns one that holds what is known of the process already.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	describeProgram(r)
	return r
}

func describeProgram(r prometheus.Registerer) {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "reveille_build_info",
		Help: "Always 1. The labels say what this program was built from: its version, the revision of its source, " +
			"and the version of Go.",
	}, []string{"version", "revision", "goversion"}).
		WithLabelValues(programVersion(), revision(), runtime.Version()).Set(1)
}

// revision is that of the source that the program was built from; empty if the build did not note it.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

// scrapes answers requests for the metrics. What can be collected is answered even if something cannot.
func scrapes(r registry, log *zap.Logger) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog: newRemarks(log).logger(), ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesMax,
	})
}
