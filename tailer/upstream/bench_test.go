package upstream

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// BenchmarkReadBatch reads batches of 100 events of 200 bytes, at the start of what the server shows and far into it.
func BenchmarkReadBatch(b *testing.B) {
	const events = 100
	event := `{"type":"user.created","text":"` + strings.Repeat("x", 167) + `"}`
	for name, behind := range map[string]int64{"first": 0, "behind 1000": 1000} {
		b.Run(name, func(b *testing.B) {
			data := "[" + strings.Repeat(event+",", int(behind)+events-1) + event + "]"
			srv := httptest.NewServer(shown("application/json", "9", data))
			defer srv.Close()
			u, err := url.Parse(srv.URL)
			if err != nil {
				b.Fatal(err)
			}
			c := New(Config{URL: u})
			defer c.Close()
			b.ReportAllocs()
			for b.Loop() {
				batch, err := c.ReadBatch(b.Context(), "/a", at(behind), events)
				if err != nil || len(batch.Events) != events || batch.To != "9" {
					b.Fatalf("%d events to %s: %v", len(batch.Events), batch.To, err)
				}
			}
			b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
