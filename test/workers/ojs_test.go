package workers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"reveille/test/harness"
)

// ojsCase is a request for the code of the OJS text: the names are those of its parameters.
type ojsCase struct {
	Secret    string `json:"secret"`
	Timestamp string `json:"timestamp"`
	Body      string `json:"body"`
	Signature string `json:"signature"`
}

// TestOJSWebhooksVerifyByTheCodeOfTheirText holds what a subscription with the format ojs really gets against the two
// receivers that OJS Webhook Delivery has the code of (14.4 and 14.5): events of the reference server, a test and a
// replay, before, during and after a rotation of the secret. During one, each signature by itself is right for its
// secret, and wrong for the other.
func TestOJSWebhooksVerifyByTheCodeOfTheirText(t *testing.T) {
	server, redis := harness.StartRefServer(t, harness.RefOptions{}), harness.StartRedis(t)
	reveille := harness.StartReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": server.StreamRoot, "REVEILLE_REDIS_URL": redis.URL,
	})
	api, operator := harness.NewClient(t, reveille.URL), harness.NewClient(t, reveille.Operator)
	receiver := harness.NewReceiver(t)
	receiver.Answer(func(_ int, p harness.Push) int {
		if strings.Contains(string(p.Body), "refuse") && p.Header.Get("Reveille-Replay") == "" {
			return http.StatusUnprocessableEntity
		}
		return http.StatusNoContent
	})
	var sub, rotated struct {
		Secret string `json:"webhook_secret"`
	}
	api.PutSubscription("/jobs/*", "jobs", `{"mode":"push","format":"ojs","webhook":"`+receiver.URL+`"}`).
		Decode(t, &sub)
	var cases []ojsCase
	var wants []bool
	holds := func(p harness.Push, secret, signature string, want bool) {
		t.Helper()
		cases = append(cases, ojsCase{secret, p.Header.Get("X-OJS-Timestamp"), string(p.Body), signature})
		wants = append(wants, want)
	}
	next := func(n int) harness.Push {
		t.Helper()
		harness.Eventually(t, harness.Wait, fmt.Sprintf("request %d", n), harness.True(func() bool {
			return len(receiver.Pushes()) >= n
		}, "it did not come"))
		p := receiver.Pushes()[n-1]
		var event struct{ Type string }
		if err := json.Unmarshal(p.Body, &event); err != nil || event.Type != p.Header.Get("X-OJS-Event-Type") ||
			p.Header.Get("X-OJS-Delivery-ID") != p.ID || p.Header.Get("X-OJS-Subscription-ID") != "jobs" ||
			!strings.HasPrefix(p.Header.Get("User-Agent"), "OJS-Webhook/1.0 Reveille/") ||
			p.Header.Get("Content-Type") != "application/json" {
			t.Errorf("request %d is %v %s", n, p.Header, p.Body)
		}
		return p
	}
	signature := func(p harness.Push) string { return p.Header.Get("X-OJS-Signature") }

	const event = `{"specversion":"1.0","id":"evt_1","type":"job.completed","source":"ojs://jobs/workers/1",` +
		`"time":"2026-02-15T22:00:00Z","subject":"1","data":{"job_type":"payment.process","text":"é"}}`
	api.Create("/jobs/1")
	api.Append("/jobs/1", event)
	p := next(1)
	if string(p.Body) != event {
		t.Errorf("the event is %s", p.Body)
	}
	holds(p, sub.Secret, signature(p), true)
	p.Body = append(slices.Clone(p.Body), ' ')
	holds(p, sub.Secret, signature(p), false)

	api.Create("/jobs/bytes", "Content-Type", "image/png")
	api.Append("/jobs/bytes", "\x00\xff\n", "Content-Type", "image/png")
	p = next(2)
	holds(p, sub.Secret, signature(p), true)

	if status, out, errs := reveille.Ask("", "test", "jobs"); status != 0 {
		t.Fatalf("reveille test: %s%s", out, errs)
	}
	p = next(3)
	holds(p, sub.Secret, signature(p), true)
	if kind := p.Header.Get("X-OJS-Event-Type"); kind != "webhook.test" {
		t.Errorf("a test has the type %q", kind)
	}

	operator.Do(http.MethodPost, "/api/v1/subscriptions/jobs/rotate-secret", "").Decode(t, &rotated)
	api.Append("/jobs/1", `{"n":1,"refuse":true}`)
	p = next(4)
	both := strings.Split(signature(p), ",")
	if len(both) != 2 {
		t.Fatalf("during the rotation the signature is %q", signature(p))
	}
	holds(p, rotated.Secret, both[0], true)
	holds(p, sub.Secret, both[1], true)
	holds(p, sub.Secret, both[0], false)
	holds(p, rotated.Secret, both[1], false)
	for _, secret := range []string{sub.Secret, rotated.Secret} {
		status, out, errs := reveille.Ask(string(p.Body), "verify", "--secret", secret,
			"--signature", signature(p), "--timestamp", p.Header.Get("X-OJS-Timestamp"))
		if status != 0 {
			t.Errorf("reveille verify: %s%s", out, errs)
		}
	}

	last := rotated.Secret
	operator.Do(http.MethodPost, "/api/v1/subscriptions/jobs/rotate-secret", `{"overlap":"0s"}`,
		"Content-Type", "application/json").Decode(t, &rotated)
	harness.Eventually(t, harness.Wait, "the dead letter is replayed", harness.True(func() bool {
		_, out, _ := reveille.Ask("", "dead-letters", "replay", "--subscription", "jobs")
		return strings.HasPrefix(out, "1 to be replayed")
	}, "there is none"))
	again := next(5)
	if again.ID != p.ID || again.Header.Get("Reveille-Replay") != "true" {
		t.Errorf("the replay of %s is %v", p.ID, again.Header)
	}
	holds(again, rotated.Secret, signature(again), true)
	holds(again, last, signature(again), false)

	in, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"node", "verify-ojs.cjs"}, {"python3", "verify-ojs.py"}} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Stdin = strings.NewReader(string(in))
		out, err := cmd.Output()
		var got []bool
		if err != nil || json.Unmarshal(out, &got) != nil || !slices.Equal(got, wants) {
			t.Errorf("%v says %s (%v), want %v", args, out, err, wants)
		}
	}
}
