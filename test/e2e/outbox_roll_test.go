package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestAStreamGoesOnceItsEventsAreGone holds that payloads do not stay for good: the stream server loses a stream once
// all of its events have expired. Those that are dead keep theirs, so they can be replayed.
func TestAStreamGoesOnceItsEventsAreGone(t *testing.T) {
	t.Parallel()
	root := "/" + name(t)
	e := start(t, options{settings: map[string]string{"REVEILLE_OUTBOX": root, "REVEILLE_OUTBOX_ROLL": "1s"}})
	target := newOutboxTarget(t)
	target.fails = 1
	dead := e.handOver(e.gateway, http.StatusAccepted,
		fmt.Sprintf(`{"target_url":%q,"event_type":"e","payload":"dead","max_attempts":1}`, target.URL))
	e.event("/events/"+dead.ID, "dead_letter")
	event := e.handOver(e.gateway, http.StatusAccepted, direct(target.URL, "key", "delivered"))
	for inOneStream(event, dead) {
		event = e.handOver(e.gateway, http.StatusAccepted, direct(target.URL, "", "delivered"))
	}
	e.event("/events/"+event.ID, "delivered")

	gone, kept := streamOfEvent(root, event), streamOfEvent(root, dead)
	if e.copies(root, event) != 1 || e.copies(root, dead) != 1 {
		t.Fatalf("the events do not lie in %s and %s", gone, kept)
	}
	partition, _, _ := strings.Cut(strings.TrimPrefix(event.ID, fsm.OutboxPrefix), "_")
	rdb, expire := e.redis.Client(), "rv:{"+partition+"}:expire"
	for _, id := range rdb.ZRange(t.Context(), expire, 0, -1).Val() { // a week passes
		rdb.ZAdd(t.Context(), expire, redis.Z{Score: 1, Member: id})
	}
	harness.Eventually(t, soon, gone+" goes", func() error {
		if res := e.streams.Do(http.MethodHead, gone, ""); res.Status != http.StatusNotFound {
			return fmt.Errorf("it answers %d", res.Status)
		}
		return nil
	})
	streams := "rv:{" + partition + "}:event_streams"
	rdb.ZAdd(t.Context(), streams, redis.Z{Score: -1, Member: gone}) // a minute passes
	harness.Eventually(t, soon, "nothing is kept of it", func() error {
		kept := rdb.ZScore(t.Context(), streams, gone)
		if !errors.Is(kept.Err(), redis.Nil) {
			return fmt.Errorf("%s of its events are kept, %w", kept, kept.Err())
		}
		return nil
	})
	if status := e.streams.Do(http.MethodHead, kept, "").Status; status != http.StatusOK {
		t.Errorf("the stream of the dead event answers %d", status)
	}
	if again := e.replays(e.gateway, dead.ID, http.StatusAccepted); again.ID == dead.ID {
		t.Errorf("the replay of %s is itself", dead.ID)
	} else {
		e.event("/events/"+again.ID, "delivered")
	}
}
