package tailer

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/spec/memstore"
)

// TestWhatLandsAfterTheFirstAnswerForASubscriptionWakes holds that of two clients who make the same subscription at the
// same time the first to be answered counts, whichever has created it, and through whichever replica.
func TestWhatLandsAfterTheFirstAnswerForASubscriptionWakes(t *testing.T) {
	for name, again := range map[string]func(*rig) (fsm.Subscription, bool, error){
		"through the same replica": func(r *rig) (fsm.Subscription, bool, error) {
			return r.discovery.Subscribe(r.t.Context(), newSubscription("s", "/**"))
		},
		"through another one": func(r *rig) (fsm.Subscription, bool, error) {
			return r.store.other.CreateSubscription(r.t.Context(), newSubscription("s", "/**"))
		},
	} {
		for event, write := range map[string]func(r *rig) string{
			"through the gateway": func(r *rig) string { r.post("/a", "2"); return "/a" },
			"past the gateway":    func(r *rig) string { r.up.append("/a", "2"); return "/a" },
			"to a new stream":     func(r *rig) string { r.put("/b", "1"); return "/b" },
		} {
			t.Run(event+", "+name, func(t *testing.T) {
				// The creator waits for its backfill all the time.
				r := newRig(t, func(c *Config) { c.Discovery.BackfillWait = 10 * time.Second }).start()
				r.put("/a", "1")
				r.until("it is known", func() bool { known, _ := r.store.knows("/a"); return known })

				stored, answer := r.holdFirstCreation()
				var creator sync.WaitGroup
				creator.Go(func() { _, _, _ = r.discovery.Subscribe(t.Context(), newSubscription("s", "/**")) })
				t.Cleanup(creator.Wait)
				<-stored
				if sub, created, err := again(r); err != nil || created {
					t.Fatal(sub, created, err)
				}
				var looks atomic.Int32
				look := make(chan struct{})
				r.up.setFault(func(_ http.ResponseWriter, req *http.Request) bool {
					if req.Method == http.MethodHead && req.URL.Path == "/a" {
						looks.Add(1)
						select {
						case <-look:
						case <-req.Context().Done():
						}
					}
					return false
				})
				close(answer)
				r.until("the backfill looks at the stream", func() bool { return looks.Load() > 0 })
				path := write(r)
				if event != "past the gateway" {
					r.until("what the gateway saw is taken in", func() bool { return r.linkedNow("s", path) })
				}
				close(look)
				r.wake(path, 1)
			})
		}
	}
}

// holdFirstCreation holds the reply of the next creation of a subscription through the replica under test, which has
// taken effect once stored is closed, until answer is.
func (r *rig) holdFirstCreation() (stored, answer chan struct{}) {
	stored, answer = make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	r.store.db.SetHooks(memstore.Hooks{After: func(c memstore.Call) error {
		if c.Method == "CreateSubscription" && c.Replica == "under test" && held.CompareAndSwap(false, true) {
			close(stored)
			<-answer
		}
		return nil
	}})
	return stored, answer
}

func TestATailThatWasNotedAfterTheFirstAnswerForASubscriptionIsNoneFromBefore(t *testing.T) {
	r := newRig(t).start()
	r.subscribe("another", "/a")
	r.put("/a", "1")
	r.wake("/a", 1)
	r.watchedLive("/a")
	stored, answer := r.holdFirstCreation()
	var creator sync.WaitGroup
	creator.Go(func() { _, _, _ = r.discovery.Subscribe(t.Context(), newSubscription("s", "/**")) })
	t.Cleanup(creator.Wait)
	<-stored
	if sub, created, err := r.store.other.CreateSubscription(t.Context(), newSubscription("s", "/**")); err != nil ||
		created {
		t.Fatal(sub, created, err)
	}
	r.up.append("/a", "2")
	r.until("it is noted", func() bool { return r.store.db.Tail("/a", "/a") == offsetOf(2) })
	close(answer)
	r.until("it is linked", func() bool { return r.linkedNow("s", "/a") })
	if got := r.acked("s", "/a"); got == offsetOf(2) {
		t.Errorf("it begins at %s", got)
	}
}
