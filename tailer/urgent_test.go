package tailer

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"reveille/tailer/discovery"
)

// TestNothingThatSomebodyWaitsForWaitsForAnUpstreamThatIsDown holds that streams can be named meanwhile, time and
// again, and that writes are taken in.
func TestNothingThatSomebodyWaitsForWaitsForAnUpstreamThatIsDown(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("s", "/**")
	r.up.setFault(answer(http.StatusServiceUnavailable))
	var names []string
	for n := range 200 {
		names = append(names, fmt.Sprint("/named/", n))
	}
	for _, path := range names[:10] {
		r.discovery.Enqueue(path, discovery.Evidence{})
	}
	r.until("upstream counts as down", r.upstream.health.IsDown)
	for range 3 { // what was named before waits for upstream by then
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if err := r.discovery.Name(ctx, names); err != nil || ctx.Err() != nil {
			t.Fatal("streams cannot be named:", err, ctx.Err())
		}
		cancel()
	}
	r.put("/a", "1")
	r.wake("/a", 1)
	r.up.create(names[0], "1")
	r.up.setFault(nil)
	r.wake(names[0], 1)
}
