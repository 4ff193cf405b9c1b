package ports

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Counted returns the counters, and of histograms how many were observed, that are not zero, by the values of their
// labels.
func Counted(t *testing.T, r prometheus.Gatherer, name string) map[string]int {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n := int(m.GetCounter().GetValue()) + int(m.GetHistogram().GetSampleCount())
			if f.GetName() != name || n == 0 {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			found[strings.Join(labels, " ")] = n
		}
	}
	return found
}
