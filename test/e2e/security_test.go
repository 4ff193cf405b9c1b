package e2e

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

func webhookBody(webhook string) string {
	b, _ := json.Marshal(map[string]string{"webhook": webhook})
	return string(b)
}

// tlsEndpoint is an HTTPS endpoint on this machine that counts its requests; ca is a file with its certificate.
func tlsEndpoint(t *testing.T) (url, ca string, requests *atomic.Int64) {
	requests = &atomic.Int64{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, ca, requests
}

func TestWebhooksMustNotLeadInside(t *testing.T) {
	t.Parallel()
	url, ca, requests := tlsEndpoint(t)
	strict := map[string]string{
		"REVEILLE_ALLOW_INSECURE_WEBHOOKS": "false", "SSL_CERT_FILE": ca,
		"REVEILLE_WEBHOOK_ALLOW_CIDRS": "127.0.0.1/32,10.1.0.0/16,fd00:1::/64",
	}
	e := beside(t, options{settings: strict})

	t.Run("a webhook inside is refused by name, and no subscription is made", func(t *testing.T) {
		for _, tc := range []struct{ what, webhook string }{
			{"relative", "/hook"},
			{"with credentials", "https://user:hunter2@example.com/hook"},
			{"ftp", "ftp://example.com/hook"},
			{"http", "http://example.com/hook"},
			{"loopback, decimal", "https://2130706433/hook"},
			{"IPv6 loopback", "https://[::1]/hook"},
			{"10/8", "https://10.2.2.3/hook"},
			{"link-local", "https://169.254.1.1/hook"},
			{"metadata", "https://169.254.169.254/latest/meta-data/"},
			{"metadata by name", "https://metadata.google.internal/"},
		} {
			res := e.gateway.PutSubscription("/inside/*", "inside", webhookBody(tc.webhook))
			refusal(t, tc.what, res, http.StatusBadRequest, fsm.CodeInvalidWebhook)
			if !strings.Contains(res.Body, "webhook") || strings.Contains(res.Body, "hunter2") {
				t.Errorf("%s: the answer %s does not name the webhook, or repeats a password", tc.what, res.Body)
			}
		}
		if res := e.gateway.Do(http.MethodGet, "/**?subscriptions", ""); res.Body != `{"subscriptions":[]}`+"\n" {
			t.Errorf("after the refusals the list is %s", res.Body)
		}
	})

	t.Run("REVEILLE_WEBHOOK_ALLOW_CIDRS lets exactly its ranges through", func(t *testing.T) {
		for webhook, allowed := range map[string]bool{
			"https://127.0.0.1/hook": true, "https://[::ffff:127.0.0.1]/hook": true, "https://10.1.0.0/hook": true,
			"https://10.1.255.255/hook": true, "https://[fd00:1::1]/hook": true,
			"https://127.0.0.2/hook": false, "https://127.0.0.0/hook": false, "https://10.0.255.255/hook": false,
			"https://10.2.0.0/hook":        false,
			"https://[fd00:1:0:1::1]/hook": false, "https://[::1]/hook": false, "https://192.168.0.1/hook": false,
			"https://169.254.169.254/hook": false, "http://127.0.0.1/hook": false, "https://2130706433/hook": false,
		} {
			res := e.gateway.PutSubscription("/cidr/*", "cidr", webhookBody(webhook))
			if allowed && res.Status != http.StatusCreated {
				t.Errorf("%s: %d %s, want 201", webhook, res.Status, res.Body)
			}
			if !allowed {
				refusal(t, webhook, res, http.StatusBadRequest, fsm.CodeInvalidWebhook)
			}
			e.gateway.DeleteSubscription("/**", "cidr")
		}
	})

	t.Run("a wake reaches an allowed address, "+
		"and once that is allowed no more, the connection is refused", func(t *testing.T) {
		id := name(t)[:20]
		e.gateway.SubscribeURL("/"+id+"/*", id, url+"/hook")
		e.gateway.Create("/" + id + "/a")
		harness.Eventually(t, soon, "a wake over HTTPS",
			harness.True(func() bool { return requests.Load() > 0 }, "none came"))
		if err := e.rev.Stop(); err != nil {
			t.Fatal(err)
		}
		again := harness.StartReveille(t, map[string]string{
			"REVEILLE_UPSTREAM_URL": e.ref.StreamRoot, "REVEILLE_REDIS_URL": e.redis.URL,
			"REVEILLE_ALLOW_INSECURE_WEBHOOKS": "false", "SSL_CERT_FILE": ca,
		})
		before := requests.Load()
		s := e.fixture(t, id, nil)
		s.path = "/" + id + "/b"
		harness.NewClient(t, again.URL).Create(s.path)
		s.await("refused attempt", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() })
		if n := requests.Load() - before; n > 0 {
			t.Errorf("%d requests reached an address that is not allowed", n)
		}
	})
}
