package e2e

import (
	"net/http"
	"sync"
	"testing"
)

// TestAKeyThatRedisHasLostIsStillOfItsEvent takes the idempotency key of an event away from Redis. Its event is kept,
// and the key is of no other.
func TestAKeyThatRedisHasLostIsStillOfItsEvent(t *testing.T) {
	t.Parallel()
	const root = "/outbox"
	e := start(t, options{settings: map[string]string{"REVEILLE_OUTBOX": root}})
	same := func(t *testing.T, e *env, body string, event outboxEvent) {
		t.Helper()
		if again := e.handOver(e.gateway, http.StatusOK, body); again.ID != event.ID {
			t.Errorf("handed over again it is %+v, want %s", again, event.ID)
		}
		if n := e.copies(root, event); n != 1 {
			t.Errorf("it lies in its stream %d times", n)
		}
	}
	in := func(t *testing.T) *env {
		e := *e
		e.t = t
		return &e
	}

	t.Run("once it is delivered", func(t *testing.T) {
		e, target := in(t), newOutboxTarget(t)
		body := direct(target.URL, "delivered", "payload")
		event := e.handOver(e.gateway, http.StatusAccepted, body)
		e.event("/events/"+event.ID, "delivered")
		e.redis.loseKey("delivered")
		same(t, e, body, event)
		e.wantOnce(target, event)
		if by := e.event("/idempotency/delivered", "delivered"); by.ID != event.ID {
			t.Errorf("by its key it is %+v", by)
		}
	})

	t.Run("while its delivery is under way", func(t *testing.T) {
		e, target := in(t), newOutboxTarget(t)
		body := direct(target.URL, "under way", "payload")
		target.held = make(gate)
		open := sync.OnceFunc(func() { close(target.held) })
		defer open()
		event := e.handOver(e.gateway, http.StatusAccepted, body)
		e.event("/events/"+event.ID, "delivering")
		e.redis.loseKey("under way")
		same(t, e, body, event)
		open()
		e.wantOnce(target, event)
	})

	t.Run("if another event asks for it first", func(t *testing.T) {
		e, target := in(t), newOutboxTarget(t)
		body, other := direct(target.URL, "asked for", "payload"), direct(target.URL, "asked for", "other")
		event := e.handOver(e.gateway, http.StatusAccepted, body)
		e.event("/events/"+event.ID, "delivered")
		e.redis.loseKey("asked for")
		for range 2 { // the first must not get it
			e.handOver(e.gateway, http.StatusConflict, other)
		}
		same(t, e, body, event)
		e.handOver(e.gateway, http.StatusConflict, other)
		e.wantOnce(target, event)
	})
}
