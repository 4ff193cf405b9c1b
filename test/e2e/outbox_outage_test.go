package e2e

import (
	"net/http"
	"net/url"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestWhileRedisIsAwayNothingIsHandedOver holds that a client is asked to try again, and that the same request then
// leads to one delivery.
func TestWhileRedisIsAwayNothingIsHandedOver(t *testing.T) {
	t.Parallel()
	const root = "/outbox"
	redis := durableRedis(t)
	e := with(t, redis, map[string]string{"REVEILLE_OUTBOX": root})
	known, fresh := newOutboxTarget(t), newOutboxTarget(t)
	before := e.handOver(e.gateway, http.StatusAccepted, direct(known.URL, "before", 1))
	e.event("/events/"+before.ID, "delivered")

	redis.Kill()
	refused := map[string]*outboxTarget{"to a known target": known, "to a new target": fresh}
	for key, target := range refused {
		wantUnavailable(t, "a hand-over "+key, e.post(direct(target.URL, key, 2)))
	}
	wantUnavailable(t, "a hand-over from before", e.post(direct(known.URL, "before", 1)))
	for _, path := range []string{
		"/events/" + before.ID, "/events/whe_0_1", "/idempotency/before", "/idempotency/nobody",
	} {
		wantUnavailable(t, "GET "+path, e.gateway.Do(http.MethodGet, "/webhooks"+path, ""))
	}
	replay := "/webhooks/events/" + before.ID + "/replay"
	wantUnavailable(t, "a replay", e.gateway.Do(http.MethodPost, replay, ""))
	redis.Restart()

	harness.Eventually(t, soon, "it is ready", func() error { return get(e.rev.Operator+"/readyz", 200, "") })
	for key, target := range refused {
		event := e.repeats(direct(target.URL, key, 2))
		e.wantOnce(target, event)
		if n := e.copies(root, event); n != 1 {
			t.Errorf("%s, the event lies in its stream %d times", key, n)
		}
		if by := e.event("/idempotency/"+url.PathEscape(key), "delivered"); by.ID != event.ID {
			t.Errorf("by its key it is %+v", by)
		}
	}
	if again := e.repeats(direct(known.URL, "before", 1)); again.ID != before.ID || again.Status != "delivered" {
		t.Errorf("what was delivered before is %+v, want %+v", again, before)
	}
	e.wantOnce(known, before)
}

// TestAnEventThatRedisIsNotToldOfIsDeliveredOnce has Redis die once the event lies in its stream, before Reveille can
// say that it was handed over.
func TestAnEventThatRedisIsNotToldOfIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	root := "/" + name(t)
	e := &env{t: t, redis: durableRedis(t), ref: shared(t).ref}
	var p *proxy
	e.run(options{
		settings: map[string]string{"REVEILLE_OUTBOX": root},
		upstream: func(url string) string { p = newProxy(t, url); return p.URL },
	})
	target, held := newOutboxTarget(t), newHanded(root)
	e.fillLanes(target.URL)
	p.breakDown(held.holdAnswers)
	body := direct(target.URL, "cut short", "payload")
	answer := make(chan harness.Response, 1)
	go func() {
		res, err := e.gateway.Try(t.Context(), http.MethodPost, "/webhooks/deliver", body,
			"Content-Type", "application/json")
		if err != nil {
			t.Error(err)
		}
		answer <- res
	}()
	<-held.taken
	e.redis.Kill()
	p.setFault(nil)
	close(held.open)
	wantUnavailable(t, "the hand-over", <-answer)
	e.redis.Restart()
	event := e.repeats(body)
	e.wantOnce(target, event)
	if by := e.event("/idempotency/cut%20short", "delivered"); by.ID != event.ID {
		t.Errorf("by its key it is %+v, want %s", by, event.ID)
	}
}

// TestWhileTheStreamServerIsAwayNothingIsHandedOver holds the same of the stream server. If it has taken the event and
// its answer is lost, the event is there once for all that clients and targets see.
func TestWhileTheStreamServerIsAwayNothingIsHandedOver(t *testing.T) {
	t.Parallel()
	root := "/" + name(t)
	e, p := behindProxy(t, options{settings: map[string]string{"REVEILLE_OUTBOX": root}})
	known := newOutboxTarget(t)
	e.fillLanes(known.URL)
	before := e.repeats(direct(known.URL, "before", 1))
	e.event("/events/"+before.ID, "delivered")
	for _, c := range []struct {
		name  string
		fails func()
		// taken says that the stream server has taken the event, and away that it gives no answers at all.
		taken, away bool
	}{
		{"it takes no connections", p.refuse, false, true},
		{"it answers with 500", func() { p.breakDown(status(http.StatusInternalServerError)) }, false, true},
		{"it knows no stream", func() { p.breakDown(status(http.StatusNotFound)) }, false, false},
		{"its answers are lost", func() { p.breakDown(newHanded(root).loseAnswers) }, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := *e
			e.t = t
			refused := map[string]*outboxTarget{
				c.name + ", to a known target": known, c.name + ", to a new target": newOutboxTarget(t),
			}
			c.fails()
			for key, target := range refused {
				wantUnavailable(t, key, e.post(direct(target.URL, key, c.name)))
			}
			if c.away {
				replay := "/webhooks/events/" + before.ID + "/replay"
				wantUnavailable(t, "a replay", e.gateway.Do(http.MethodPost, replay, ""))
				// The state of an event is kept in Redis.
				if shown := e.event("/events/"+before.ID, "delivered"); shown.Payload != nil {
					t.Errorf("the payload is %s", shown.Payload)
				}
			}
			p.refuse()
			p.setFault(nil)
			p.listen()
			for key, target := range refused {
				event := e.repeats(direct(target.URL, key, c.name))
				e.wantOnce(target, event)
				if n := e.copies(root, event); n != 1 && !c.taken {
					t.Errorf("%s, the event lies in its stream %d times", key, n)
				}
			}
			if again := e.repeats(direct(known.URL, "before", 1)); again.ID != before.ID {
				t.Errorf("what was delivered before is %+v, want %+v", again, before)
			}
		})
	}
}

// TestAnEventOfAReplicaThatDiedIsDeliveredOnce kills the replica that takes the hand-over, when the event lies in its
// stream and Redis does not know of it.
func TestAnEventOfAReplicaThatDiedIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	root := "/" + name(t)
	f := startFleet(t, 2, map[string]string{"REVEILLE_OUTBOX": root})
	target := newOutboxTarget(t)
	f.fillLanes(target.URL)
	// die hands an event over at the first replica, which dies of it. Nobody reads the event until held is open.
	die := func(e *env, body, key string) (held *handed) {
		e.t.Helper()
		held = newHanded(root)
		f.proxies[0].breakDown(held.holdAnswers)
		f.proxies[1].breakDown(held.holdReads)
		ended := make(chan error, 1)
		go func() {
			_, err := f.gateways[0].Try(e.t.Context(), http.MethodPost, "/webhooks/deliver", body,
				"Content-Type", "application/json")
			ended <- err
		}()
		<-held.taken
		f.replicas[0].Kill()
		if err := <-ended; err == nil {
			e.t.Error("the hand-over was answered")
		}
		res := e.gateway.Do(http.MethodGet, "/webhooks/idempotency/"+key, "")
		refusal(e.t, "what Redis does not know of", res, http.StatusNotFound, fsm.CodeNotFound)
		return held
	}
	// at is the fleet with just the second replica, for one test.
	at := func(t *testing.T) *env {
		e := *f.env
		e.t, e.gateway = t, f.gateways[1]
		return &e
	}

	t.Run("if the client never repeats it", func(t *testing.T) {
		body, e := direct(target.URL, "never-repeated", "payload"), at(t)
		close(die(e, body, "never-repeated").open)
		event := e.event("/idempotency/never-repeated", "delivered")
		e.wantOnce(target, event)
		if n := e.copies(root, event); n != 1 {
			t.Errorf("it lies in its stream %d times", n)
		}
		if shown := e.event("/events/"+event.ID, "delivered"); string(shown.Payload) != `"payload"` {
			t.Errorf("it is %+v", shown)
		}
		if again := e.handOver(e.gateway, http.StatusOK, body); again.ID != event.ID {
			t.Errorf("repeated in the end, it is %+v, want %s", again, event.ID)
		}
	})
	f.proxies[0].setFault(nil)
	f.proxies[1].setFault(nil)
	f.replicas[0].Start()

	t.Run("if the client repeats it at the other replica before it is delivered", func(t *testing.T) {
		body, e := direct(target.URL, "repeated", "payload"), at(t)
		held := die(e, body, "repeated")
		event := e.repeats(body)
		if n := e.copies(root, event); n != 2 {
			t.Errorf("it lies in its stream %d times, want 2: the test is to hold that the target gets one", n)
		}
		if again := e.handOver(e.gateway, http.StatusOK, body); again.ID != event.ID {
			t.Errorf("repeated once more, it is %+v, want %s", again, event.ID)
		}
		close(held.open)
		e.wantOnce(target, event)
		if by := e.event("/idempotency/repeated", "delivered"); by.ID != event.ID || by.Attempts != 1 {
			t.Errorf("it is %+v, want %s after one attempt", by, event.ID)
		}
	})
}
