package upstream

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"reveille/fsm"
)

// BenchmarkReadBatch reads 1,000 events of 200 bytes in batches, one after the other, at the start and at the end of a
// backlog of 100,000 events that the server shows in one answer. Getting to the first of them is not counted.
func BenchmarkReadBatch(b *testing.B) {
	const backlog, events = 100_000, 1000
	event := `{"type":"user.created","text":"` + strings.Repeat("x", 167) + `"}`
	srv := httptest.NewServer(shown("application/json", "9", "["+strings.Repeat(event+",", backlog-1)+event+"]"))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		b.Fatal(err)
	}
	c := New(Config{URL: u})
	defer c.Close()
	for _, most := range []int{1, 100} {
		for name, behind := range map[string]int64{"first": 1, "last": backlog - events} {
			b.Run(fmt.Sprintf("%s/%d", name, most), func(b *testing.B) {
				read := func(position fsm.Offset, most int) fsm.Batch {
					batch, err := c.ReadBatch(b.Context(), "r", "/a", position, "", most, 0, nil)
					if err != nil {
						b.Fatal(err)
					}
					return batch
				}
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					read(at(behind-1), 1)
					b.StartTimer()
					position := at(behind)
					for n := 0; n < events; {
						batch := read(position, most)
						n, position = n+len(batch.Events), batch.To
					}
				}
				b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
