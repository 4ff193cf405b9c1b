package tailer

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// figures returns the values of a metric that are not zero, of histograms the count, by the values of its labels.
func figures(t *testing.T, r prometheus.Gatherer, name string) map[string]int {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n := int(m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()))
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

func TestRequestsAndWatchedStreamsAreCounted(t *testing.T) {
	modes(t, func(t *testing.T, mode func(*Config)) {
		reg := prometheus.NewPedanticRegistry()
		r := newRig(t, mode, func(c *Config) { c.Metrics, c.MaxLive = reg, 1 }).start()
		r.subscribe("s", "/**")
		in := func(name string, n int) func() bool {
			return func() bool { return figures(t, reg, "reveille_watched_streams")[name] == n }
		}
		r.put("/swept", "1")
		r.until("a stream is watched live", in("live", 1))
		r.put("/live", "1")
		r.until("one stream has the request", in("live", 1))
		r.until("the other is swept", in("sweep", 1))
		r.up.create("/ttl")
		r.up.change("/ttl", func(s *stream) { s.ttl = true })
		w := r.discovery.BeforeWrite(t.Context(), "/ttl", false)
		r.discovery.Written(w, r.up.append("/ttl", "1"), false)
		r.until("a stream with a time to live is only looked at with HEAD", in("head_only", 1))
		r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path == "/swept" {
				w.WriteHeader(http.StatusForbidden)
			}
			return req.URL.Path == "/swept"
		})
		r.until("a stream that cannot be looked at fails", in("failing", 1))
		r.up.setFault(nil)
		r.until("it works again", in("failing", 0))
		r.store.setGrace(time.Hour)
		r.up.remove("/ttl")
		r.until("a stream that upstream has not is away", in("away", 1))
		requests := figures(t, reg, "reveille_upstream_requests_total")
		for _, want := range []string{"head ok", "head missing", "head client_error"} {
			if requests[want] == 0 {
				t.Errorf("there was no request %q: %v", want, requests)
			}
		}
		if took := figures(t, reg, "reveille_upstream_request_duration_seconds"); took["head"] == 0 {
			t.Errorf("timed %v", took)
		}
		r.stop()
		if left := figures(t, reg, "reveille_watched_streams"); len(left) != 0 {
			t.Errorf("after the end these are watched: %v", left)
		}
		if up := figures(t, reg, "reveille_upstream_up"); up[""] != 1 {
			t.Errorf("upstream is not up: %v", up)
		}
	})
}

func TestAWakeSaysWhenAndHowItsEventWasSeen(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Discovery.AwaitMin, c.Check = time.Hour, time.Hour }).start()
	before := time.Now()
	r.idle("/a")
	if w := r.wake("/a", 1); !w.Seen.Gateway || w.Seen.At.Before(before) || w.Seen.At.After(time.Now()) {
		t.Errorf("the wake of a stream made through the gateway was seen %+v", w.Seen)
	}
	before = time.Now()
	r.up.append("/a", "behind the gateway")
	w := r.wake("/a", 2)
	if w.Seen.Gateway || w.Seen.At.Before(before) || w.Seen.At.After(time.Now()) {
		t.Errorf("the wake of an event that a request showed was seen %+v", w.Seen)
	}
	before = time.Now()
	r.up.set(func() { r.up.deaf = true })
	r.post("/a", "while it is busy")
	r.done(w)
	// By now the store knows of the event, or is told of it: a wake that comes of resting is not one
	// that an event set off.
	if w = r.wake("/a", 3); !w.Seen.At.IsZero() && w.Seen.At.Before(before) {
		t.Errorf("the wake was seen %+v, before its event", w.Seen)
	}
	r.done(w)
	r.post("/a", "that only the gateway sees")
	if w = r.wake("/a", 4); !w.Seen.Gateway || w.Seen.Path != "/a" || w.Seen.Tail != offsetOf(3) {
		t.Errorf("the wake of a write was seen %+v", w.Seen)
	}
}
