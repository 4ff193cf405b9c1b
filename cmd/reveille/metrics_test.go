package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"reveille/redisstore"
)

// recorder is a registry that knows what was registered with it.
type recorder struct {
	*prometheus.Registry
	collectors []prometheus.Collector
}

func (r *recorder) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return r.Registry.Register(c)
}

func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// assembled is the registry of a program that has all of its parts and does not run.
func assembled(t *testing.T) *recorder {
	t.Helper()
	environ(t, enough("REDIS_URL", redisstore.Embedded, "EVENTS_STREAM", "/ojs/webhooks"))
	s, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	rdb, closeRedis, err := redisstore.Connect(s.RedisURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeRedis() })
	r := &recorder{Registry: prometheus.NewRegistry()}
	describeProgram(r)
	if _, err := assemble(s, rdb, zap.NewNop(), zap.NewAtomicLevel(), r, &tracing{}); err != nil {
		t.Fatal(err)
	}
	return r
}

func typeOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case prometheus.Counter:
		if _, ok := c.(prometheus.Gauge); !ok {
			return "counter"
		}
	}
	return "gauge"
}

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", unit: "", ` +
	`constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)

// table is METRICS.md's.
func (r *recorder) table(t *testing.T) string {
	t.Helper()
	var rows []string
	for _, c := range r.collectors {
		descs := make(chan *prometheus.Desc, 100)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			m := described.FindStringSubmatch(d.String())
			switch {
			case m == nil:
				if strings.Contains(d.String(), `fqName: "reveille_`) {
					t.Fatalf("a description has another form: %s", d)
				}
				continue
			case !strings.HasPrefix(m[1], "reveille_"):
				continue
			}
			labels := strings.ReplaceAll(m[3], ",", ", ")
			rows = append(rows,
				fmt.Sprintf("| `%s` | %s | %s | %s |", m[1], typeOf(c), labels, strings.ReplaceAll(m[2], "|", `\|`)))
		}
	}
	slices.Sort(rows)
	return strings.Join(rows, "\n")
}

const metricsHead = "# Metrics\n\n" +
	"`GET /metrics` on the operator port, in the Prometheus format. No metric is per stream or per consumer. In\n" +
	"each replica at most 1000 subscriptions have series of their own, which end within a minute of the\n" +
	"subscription's deletion. There are also the metrics of the Go runtime (`go_*`) and of the process\n" +
	"(`process_*`).\n\n" +
	"This file is generated from the program: `go test ./cmd/reveille -run Metrics -update`.\n\n" +
	"| name | type | labels | |\n| --- | --- | --- | --- |\n"

func TestTheListOfMetricsIsThatOfTheProgram(t *testing.T) {
	want := metricsHead + assembled(t).table(t) + "\n"
	if *update {
		if err := os.WriteFile("METRICS.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("METRICS.md is out of date; with -update this test writes it:\n%s", want)
	}
}

func TestTheMetricsKeepPrometheusRules(t *testing.T) {
	problems, err := testutil.GatherAndLint(assembled(t).Registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
