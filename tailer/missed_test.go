package tailer

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// missing has the server miss an append to a stream with its next n live requests: it lands while they are set up.
func (r *rig) missing(path string, n int32) {
	var left atomic.Int32
	left.Store(n)
	r.up.set(func() {
		r.up.setUp = func(p string) {
			if p == path && left.Add(-1) >= 0 {
				r.up.append(path, "missed")
			}
		}
	})
}

func TestAHeadThatFindsAnAppendWhichWasMissedIsEvidence(t *testing.T) {
	modes(t, func(t *testing.T, mode func(*Config)) {
		r := newRig(t, mode).start()
		r.subscribe("s", "/**")
		r.missing("/a", 2*missesMin) // auto: as many by SSE, and as many by long-polls
		r.put("/a")
		n := 1
		for r.upstream.health.Misses() < missesMin {
			r.done(r.wake("/a", n))
			n++
		}
		if n := testutil.ToFloat64(r.missed); n < missesMin {
			t.Errorf("%v are counted", n)
		}
	})
}

// The next regular check is an hour away.
func TestAnAppendThatAnUpstreamMissesWhichIsKnownToIsSeenSoon(t *testing.T) {
	modes(t, func(t *testing.T, mode func(*Config)) {
		r := newRig(t, mode, func(c *Config) { c.Check, c.CheckSoon = time.Hour, 20*time.Millisecond }).start()
		conn := r.upstream.NewConn()
		for range missesMin {
			r.upstream.health.Missed(&conn)
		}
		r.subscribe("s", "/**")
		r.missing("/a", 1)
		r.put("/a")
		r.done(r.wake("/a", 1))
		if w := r.wake("/a", 2); w.Streams[0].Tail != offsetOf(1) {
			t.Errorf("woken up to %s", w.Streams[0].Tail)
		}
	})
}
