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

// scrapesMax is how many requests for the metrics are answered at a time. The others get 503.
const scrapesMax = 8

// registry registers the metrics of the parts, and collects them for the metrics page.
type registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// newRegistry returns a registry with the metrics of the process.
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

// revision returns the revision of the program's source; empty if the build did not note it.
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

// scrapes answers requests for the metrics. It answers with what can be collected, even if something cannot.
func scrapes(r registry, log *zap.Logger) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog: newRemarks(log).logger(), ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesMax,
	})
}
