package tailer

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"reveille/fsm"
)

func TestAStreamIsLinkedBeforeAWriteToASubscriptionThatIsBeingBackfilled(t *testing.T) {
	r := newRig(t).start()
	r.put("/a", "1")
	r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
	sub := r.store.create(t, "s", "/**")
	// The backfill has not come to it when it is written to.
	r.post("/a", "2")
	if w := r.wake("/a", 1); w.Streams[0].Acked != offsetOf(1) {
		t.Errorf("woken with %+v", w.Streams[0])
	}
	r.discovery.Subscribed(t.Context(), sub)
	if got := r.acked("s", "/a"); got != offsetOf(1) {
		t.Errorf("the backfill moved it to %s", got)
	}
}

func TestExistingStreams(t *testing.T) {
	r := newRig(t).start()
	const streams = 50
	path := func(i int) string { return fmt.Sprintf("/a/%d", i) }
	for i := range streams {
		r.put(path(i), "1")
	}
	r.until("they are known", func() bool { k, _ := r.store.knows(path(streams - 1)); return k })
	r.subscribe("s", "/a/*")
	for i := range streams {
		r.until("it is linked", func() bool { return r.linkedNow("s", path(i)) })
		if got := r.acked("s", path(i)); got != offsetOf(1) {
			t.Errorf("%s begins at %s", path(i), got)
		}
	}
	r.mu.Lock()
	if len(r.wakes) != 0 {
		t.Errorf("%d wakes", len(r.wakes))
	}
	r.mu.Unlock()
	r.until("the backfill is over", func() bool { b, _ := r.store.Backfills(t.Context()); return len(b) == 0 })
	r.up.append(path(7), "2")
	r.wake(path(7), 1)
}

func TestABackfill(t *testing.T) {
	hang := func(r *rig, path string) {
		r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
			if req.URL.Path != path {
				return false
			}
			w.WriteHeader(500)
			return true
		})
	}
	prepare := func(t *testing.T) *rig {
		r := newRig(t, func(c *Config) { c.Discovery.BackfillWait = 50 * time.Millisecond }).start()
		for _, path := range []string{"/a/1", "/a/2", "/a/3"} {
			r.put(path, "1")
			r.until("it is known", func() bool { k, _ := r.store.knows(path); return k })
		}
		hang(r, "/a/2")
		return r
	}
	t.Run("goes on in the background and shows its progress", func(t *testing.T) {
		r := prepare(t)
		r.subscribe("s", "/a/*")
		r.until("two of three are done", func() bool {
			b, _ := r.store.Backfills(t.Context())
			return b["s"] == fsm.Backfill{Done: 2, Total: 3}
		})
		r.up.setFault(nil)
		r.until("it is over", func() bool { b, _ := r.store.Backfills(t.Context()); return len(b) == 0 })
		if got := r.acked("s", "/a/2"); got != offsetOf(1) {
			t.Errorf("it begins at %s", got)
		}
	})
	t.Run("survives a restart", func(t *testing.T) {
		r := prepare(t)
		r.subscribe("s", "/a/*")
		r.stop()
		r.up.setFault(nil)
		r.build()
		r.start()
		r.until("it is over", func() bool { b, _ := r.store.Backfills(t.Context()); return len(b) == 0 })
		if !r.linkedNow("s", "/a/2") {
			t.Error("a stream was left out")
		}
	})
	t.Run("ends with its subscription", func(t *testing.T) {
		r := prepare(t)
		r.subscribe("s", "/a/*")
		if err := r.store.DeleteSubscription(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		r.until("nothing runs", func() bool {
			return r.discovery.Held()["backfills"] == 0
		})
		if r.linkedNow("s", "/a/1") {
			t.Error("it has a consumer")
		}
	})
	t.Run("wakes for a stream that appeared after the answer", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Discovery.BackfillWait = time.Millisecond }).start()
		if err := r.discovery.Name(t.Context(), []string{"/a/2"}); err != nil {
			t.Fatal(err)
		}
		hang(r, "/a/2")
		r.subscribe("s", "/a/*")
		r.up.create("/a/2", "1")
		r.up.setFault(nil)
		if w := r.wake("/a/2", 1); w.Streams[0].Acked != fsm.Start {
			t.Errorf("woken with %+v", w.Streams[0])
		}
	})
	t.Run("wakes for an event that landed after the answer, while it waited for a HEAD", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Discovery.BackfillWait = time.Millisecond }).start()
		r.put("/a", "1")
		r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })
		asked, answer := make(chan struct{}, 100), make(chan struct{})
		r.up.setFault(func(_ http.ResponseWriter, req *http.Request) bool {
			if req.Method == http.MethodHead && req.URL.Path == "/a" {
				asked <- struct{}{}
				select {
				case <-answer:
				case <-req.Context().Done():
				}
			}
			return false
		})
		r.subscribe("s", "/**")
		<-asked
		if r.linkedNow("s", "/a") {
			t.Error("it is linked although no HEAD was answered")
		}
		r.up.append("/a", "2")
		close(answer)
		if w := r.wake("/a", 1); w.Streams[0].Acked != offsetOf(1) {
			t.Errorf("woken with %+v", w.Streams[0])
		}
	})
}
