package workers

import (
	"net/http"
	"strings"
	"testing"

	"reveille/test/harness"
)

// TestWhoKnowsEitherSecretVerifiesWhileItIsRotated holds the requests of both signature schemes against what receivers
// verify them by: the function in SIGNATURES.md, and the library of Standard Webhooks.
func TestWhoKnowsEitherSecretVerifiesWhileItIsRotated(t *testing.T) {
	server, redis := harness.StartRefServer(t, harness.RefOptions{}), harness.StartRedis(t)
	reveille := harness.StartReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": server.StreamRoot, "REVEILLE_REDIS_URL": redis.URL,
	})
	api, operator := harness.NewClient(t, reveille.URL), harness.NewClient(t, reveille.Operator)
	for scheme, verifier := range map[string]string{
		"hmac": "host-function.mjs", "standard-webhooks": "host-standardwebhooks.mjs",
		"default": "host-standardwebhooks.mjs",
	} {
		t.Run(scheme, func(t *testing.T) {
			receiver := harness.NewReceiver(t)
			stream := "/" + scheme + "/1"
			api.Create(stream)
			var sub, rotated struct {
				Secret string `json:"webhook_secret"`
			}
			asked := `{"mode":"push","webhook":"` + receiver.URL + `"`
			if scheme != "default" {
				asked += `,"signature":"` + scheme + `"`
			}
			api.PutSubscription("/"+scheme+"/*", scheme, asked+"}").Decode(t, &sub)
			first := harness.NewClient(t, script(verifier)(t, sub.Secret, "http://127.0.0.1:1").URL)
			deliver := func(n int) harness.Push {
				t.Helper()
				api.Append(stream, `{"n":1}`)
				receiver.Await(stream, n)
				return receiver.Pushes()[n-1]
			}
			judge := func(by *harness.Client, p harness.Push, more ...string) int {
				t.Helper()
				var header []string
				for name := range p.Header {
					if strings.HasPrefix(name, "Webhook-") {
						header = append(header, name, p.Header.Get(name))
					}
				}
				return by.Do(http.MethodPost, "/", string(p.Body)+strings.Join(more, ""), header...).Status
			}
			if status := judge(first, deliver(1)); status != http.StatusOK {
				t.Fatalf("before: %d", status)
			}
			operator.Do(http.MethodPost, "/api/v1/subscriptions/"+scheme+"/rotate-secret", "").Decode(t, &rotated)
			second := harness.NewClient(t, script(verifier)(t, rotated.Secret, "http://127.0.0.1:1").URL)
			p := deliver(2)
			for name, by := range map[string]*harness.Client{"the previous secret": first, "the new one": second} {
				if status := judge(by, p); status != http.StatusOK {
					t.Errorf("by %s: %d of %v", name, status, p.Header)
				}
				if status := judge(by, p, " "); status != http.StatusUnauthorized {
					t.Errorf("another body, by %s: %d", name, status)
				}
			}
			operator.Do(http.MethodPost, "/api/v1/subscriptions/"+scheme+"/rotate-secret", `{"overlap":"0s"}`,
				"Content-Type", "application/json").Decode(t, &rotated)
			third := harness.NewClient(t, script(verifier)(t, rotated.Secret, "http://127.0.0.1:1").URL)
			p = deliver(3)
			for want, by := range map[int]*harness.Client{http.StatusOK: third, http.StatusUnauthorized: second} {
				if status := judge(by, p); status != want {
					t.Errorf("without an overlap: %d, want %d", status, want)
				}
			}
		})
	}
}
