package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestDirectDeliveriesMustNotLeadInside holds that targets are judged as webhooks are, also those of events that were
// handed over when they were allowed.
func TestDirectDeliveriesMustNotLeadInside(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"REVEILLE_OUTBOX": "/" + name(t)}
	e := beside(t, options{settings: settings})
	target := newOutboxTarget(t)
	body := direct(target.URL, "from before", 1)
	before := e.handOver(e.gateway, http.StatusAccepted, body)
	e.event("/events/"+before.ID, "delivered")
	if err := e.rev.Stop(); err != nil {
		t.Fatal(err)
	}
	settings["REVEILLE_ALLOW_INSECURE_WEBHOOKS"] = "false"
	e.rev = harness.StartReveille(t, e.settings(settings))
	e.gateway = harness.NewClient(t, e.rev.URL)
	const password = "hunter2-of-a-target"
	refused := func(t *testing.T, what string, res harness.Response) {
		t.Helper()
		refusal(t, what, res, http.StatusBadRequest, fsm.CodeInvalidWebhook)
		if !strings.Contains(res.Body, "target_url: ") || strings.Contains(res.Body, password) {
			t.Errorf("%s: the answer %s does not name target_url, or repeats a password", what, res.Body)
		}
	}

	t.Run("a target inside is refused by name, and nothing is kept", func(t *testing.T) {
		for _, target := range []string{
			"https://169.254.169.254/latest/meta-data/", "http://169.254.169.254/", "https://169.254.1.1/hook",
			"https://metadata.google.internal/", "https://[::1]/hook", "http://[::1]/", "https://127.0.0.1/hook",
			"https://localhost/hook", "http://localhost/", "https://api.localhost/hook", "https://2130706433/hook",
			"https://0x7f.1/hook", "https://10.2.2.3/hook", "https://192.168.0.1/hook", "https://0.0.0.0/hook",
			"https://[fd00::1]/hook", "https://[::ffff:10.0.0.1]/hook", "https://user:" + password + "@example.com/",
			"https://" + password + "@example.com/", "http://example.com/hook", "ftp://example.com/hook",
			"file:///etc/passwd", "javascript:alert(1)", "https:///hook", "https://:443/hook", "//example.com/hook",
			"/hook", "https://example.com/hook#part", "https://example.com:0/hook", "https://exam ple.com/",
		} {
			refused(t, target, e.post(direct(target, "inside", "payload")))
		}
		if found := e.redis.keysLike("rv:{*}:key:inside"); len(found) != 0 {
			t.Errorf("the idempotency key is kept: %v", found)
		}
		res := e.gateway.Do(http.MethodGet, "/webhooks/idempotency/inside", "")
		refusal(t, "the key", res, http.StatusNotFound, fsm.CodeNotFound)
		var list struct{ Subscriptions []harness.Subscription }
		e.operator().Do(http.MethodGet, "/api/v1/subscriptions", "").Decode(t, &list)
		if len(list.Subscriptions) != 1 {
			t.Errorf("the subscriptions are %v, want just that of the target from before", list.Subscriptions)
		}
	})

	t.Run("a target that is not allowed any more gets no replay", func(t *testing.T) {
		replay := "/webhooks/events/" + before.ID + "/replay"
		refused(t, "a replay", e.gateway.Do(http.MethodPost, replay, ""))
		refused(t, "a replay with a key", e.gateway.Do(http.MethodPost, replay, `{"idempotency_key":"again"}`,
			"Content-Type", "application/json"))
		refused(t, "the same hand-over", e.post(body))
		if found := e.redis.keysLike("rv:{*}:key:*"); len(found) != 1 {
			t.Errorf("the keys are %v, want that of the event from before", found)
		}
		if shown := e.event("/events/"+before.ID, "delivered"); shown.Attempts != 1 {
			t.Errorf("the event from before is %+v", shown)
		}
		if came, _ := target.of(before.ID, "X-Webhook-Attempt"); len(came) != 1 {
			t.Errorf("it was delivered by %d requests, want 1", len(came))
		}
	})
}

// TestSecretsOfATargetAreNotShown has deliveries fail in each way, and hand-overs be refused. The path of a target may
// be as secret as its query. The harness looks at the other pages of the operator port, too.
func TestSecretsOfATargetAreNotShown(t *testing.T) {
	t.Parallel()
	const token, path, payload = "t0ken-of-this-target", "p4th-of-this-target", "payl0ad-of-this-hand-over-to-a-target"
	e, p := behindProxy(t, options{settings: map[string]string{"REVEILLE_OUTBOX": "/" + name(t)}})
	hidden := func(root string) string { return root + "/" + path + "?token=" + token }
	targets := []string{hidden(fmt.Sprintf("http://127.0.0.1:%d", harness.FreePort(t)))}
	for _, answer := range []http.HandlerFunc{
		withStatus(http.StatusInternalServerError), withStatus(http.StatusGone), withRaw("nonsense\r\n"), withRaw(""),
		withStatus(http.StatusFound, "Location", hidden("http://127.0.0.1:9")),
		func(w http.ResponseWriter, r *http.Request) { http.Error(w, r.URL.String(), http.StatusBadRequest) },
	} {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		targets = append(targets, hidden(server.URL))
	}
	var dead []outboxEvent
	for n, target := range targets {
		body := strings.Replace(direct(target, "", payload), "{", `{"max_attempts":2,`, 1)
		event := e.handOver(e.gateway, http.StatusAccepted, body)
		if n == 2 { // a target that is gone waits for an operator
			harness.Eventually(t, soon, "it is told", harness.True(func() bool {
				return strings.Contains(e.rev.Log(), `"status":410`)
			}, "not yet"))
			continue
		}
		dead = append(dead, e.event("/events/"+event.ID, "dead_letter"))
	}
	good := newOutboxTarget(t)
	event := e.handOver(e.gateway, http.StatusAccepted, direct(hidden(good.URL), "taken", payload))
	e.event("/events/"+event.ID, "delivered")
	e.replays(e.gateway, event.ID, http.StatusAccepted)
	refused := map[string]int{direct(hidden(good.URL), "taken", "another payload"): http.StatusConflict}
	for _, root := range []string{
		"ftp://example.com", "http://user:" + token + "@example.com", "http://%zz", "http://:" + token, "http://[::1",
		"http://127.0.0.1:" + token, "http://127.0.0.1/%zz",
	} {
		refused[direct(hidden(root), "", payload)] = http.StatusBadRequest
	}
	for body, status := range refused {
		if res := e.post(body); res.Status != status {
			t.Errorf("%s: %d %s, want %d", body, res.Status, res.Body, status)
		}
	}
	p.refuse()
	wantUnavailable(t, "a hand-over", e.post(direct(hidden(good.URL), "", payload)))

	_, metrics := e.scrape(t)
	shown := map[string]string{"the log": e.rev.Log(), "the metrics": metrics}
	for where, text := range shown {
		if _, after, found := strings.Cut(text, path); found {
			t.Errorf("%s: the path of a target stands before %.200s", where, after)
		}
	}
	for _, text := range []string{"delivery attempt", "takes no events for direct delivery", "outbox."} {
		if !strings.Contains(shown["the log"], text) {
			t.Errorf("the log has nothing of %q, so it shows nothing", text)
		}
	}
	// Operators see the beginning of an answer, which may repeat the path.
	for _, page := range []string{"/api/v1/dead-letters", "/api/v1/subscriptions"} {
		shown[page] = e.operator().Do(http.MethodGet, page, "").Body
	}
	for _, event := range dead {
		shown["the error of "+event.ID] = event.LastError
	}
	for where, text := range shown {
		for what, secret := range map[string]string{"token": token, "payload": payload} {
			if _, after, found := strings.Cut(text, secret); found {
				t.Errorf("%s: the %s of a target stands before %.200s", where, what, after)
			}
		}
	}
}
