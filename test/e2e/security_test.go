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

func TestWebhooksMustNotLeadInside(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: map[string]string{"REVEILLE_ALLOW_INSECURE_WEBHOOKS": "false"}})
	for _, tc := range []struct{ what, webhook string }{
		{"relative", "/hook"},
		{"without a scheme", "example.com/hook"},
		{"with a relative scheme", "//example.com/hook"},
		{"opaque", "https:example.com"},
		{"without a host", "https:///hook"},
		{"not a URL", "https://exa mple.com/%zz"},
		{"with a user", "https://user@example.com/hook"},
		{"with credentials", "https://user:hunter2@example.com/hook"},
		{"with a fragment", "https://example.com/hook#part"},
		{"with a port out of range", "https://example.com:70000/hook"},
		{"ftp", "ftp://example.com/hook"},
		{"file", "file:///etc/passwd"},
		{"http", "http://example.com/hook"},
		{"http in capitals", "HTTP://example.com/hook"},
		{"localhost", "https://localhost/hook"},
		{"localhost with a dot", "https://localhost./hook"},
		{"localhost in capitals", "https://LOCALHOST/hook"},
		{"a name below localhost", "https://hook.localhost/hook"},
		{"loopback", "https://127.0.0.1/hook"},
		{"loopback with a port", "https://127.0.0.1:8443/hook"},
		{"loopback elsewhere", "https://127.255.255.254/hook"},
		{"loopback with a dot", "https://127.0.0.1./hook"},
		{"loopback, short", "https://127.1/hook"},
		{"loopback, decimal", "https://2130706433/hook"},
		{"loopback, hexadecimal", "https://0x7f000001/hook"},
		{"loopback, hexadecimal parts", "https://0x7f.0.0.1/hook"},
		{"loopback, octal", "https://0177.0.0.1/hook"},
		{"loopback, octal in one", "https://017700000001/hook"},
		{"loopback, percent-encoded", "https://%31%32%37.0.0.1/hook"},
		{"loopback, full-width digits", "https://１２７.0.0.1/hook"},
		{"loopback, ideographic full stops", "https://127。0。0。1/hook"},
		{"IPv6 loopback", "https://[::1]/hook"},
		{"IPv6 loopback, long", "https://[0:0:0:0:0:0:0:1]/hook"},
		{"IPv4-mapped loopback", "https://[::ffff:127.0.0.1]/hook"},
		{"IPv4-mapped loopback, hexadecimal", "https://[::ffff:7f00:1]/hook"},
		{"IPv4-compatible loopback", "https://[::127.0.0.1]/hook"},
		{"NAT64 of loopback", "https://[64:ff9b::127.0.0.1]/hook"},
		{"6to4 of a private address", "https://[2002:a00:1::1]/hook"},
		{"unspecified", "https://0.0.0.0/hook"},
		{"unspecified, short", "https://0/hook"},
		{"unspecified IPv6", "https://[::]/hook"},
		{"10/8", "https://10.1.2.3/hook"},
		{"172.16/12", "https://172.31.255.255/hook"},
		{"192.168/16", "https://192.168.0.1/hook"},
		{"IPv4-mapped private", "https://[::ffff:10.0.0.1]/hook"},
		{"CGNAT", "https://100.64.0.1/hook"},
		{"link-local", "https://169.254.1.1/hook"},
		{"IPv6 link-local", "https://[fe80::1]/hook"},
		{"IPv6 link-local with a zone", "https://[fe80::1%25eth0]/hook"},
		{"unique local", "https://[fd12:3456::1]/hook"},
		{"multicast", "https://224.0.0.1/hook"},
		{"IPv6 multicast", "https://[ff02::1]/hook"},
		{"broadcast", "https://255.255.255.255/hook"},
		{"documentation", "https://192.0.2.1/hook"},
		{"metadata", "https://169.254.169.254/latest/meta-data/"},
		{"metadata, decimal", "https://2852039166/"},
		{"metadata, IPv4-mapped", "https://[::ffff:169.254.169.254]/"},
		{"metadata, NAT64", "https://[64:ff9b::a9fe:a9fe]/"},
		{"metadata, IPv6", "https://[fd00:ec2::254]/"},
		{"metadata of Azure's wire server", "https://168.63.129.16/"},
		{"metadata of Alibaba", "https://100.100.100.200/"},
		{"metadata by name", "https://metadata.google.internal/"},
	} {
		res := e.gateway.PutSubscription("/inside/*", "inside", webhookBody(tc.webhook))
		refusal(t, tc.what, res, http.StatusBadRequest, fsm.CodeInvalidWebhook)
		if !strings.Contains(res.Body, "webhook") || strings.Contains(res.Body, "hunter2") {
			t.Errorf("%s: the answer %s does not name the webhook, or repeats a password", tc.what, res.Body)
		}
	}
	for what, body := range map[string]string{
		"missing": `{}`, "empty": `{"webhook":""}`, "null": `{"webhook":null}`,
		"a number": `{"webhook":7}`,
	} {
		res := e.gateway.PutSubscription("/inside/*", "inside", body)
		refusal(t, what, res, http.StatusBadRequest, fsm.CodeInvalidRequest)
		if !strings.Contains(res.Body, "webhook") {
			t.Errorf("%s: the answer %s does not name the webhook", what, res.Body)
		}
	}
	if sub, ok := e.gateway.Subscription("inside"); ok {
		t.Errorf("a refused request created %+v", sub)
	}
	if res := e.gateway.Do(http.MethodGet, "/**?subscriptions", ""); res.Body != `{"subscriptions":[]}`+"\n" {
		t.Errorf("after the refusals the list is %s", res.Body)
	}
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

func TestWebhookRangesThatAreAllowed(t *testing.T) {
	t.Parallel()
	url, ca, requests := tlsEndpoint(t)
	strict := map[string]string{
		"REVEILLE_ALLOW_INSECURE_WEBHOOKS": "false", "SSL_CERT_FILE": ca,
		"REVEILLE_WEBHOOK_ALLOW_CIDRS": "127.0.0.1/32,10.1.0.0/16,fd00:1::/64",
	}
	e := start(t, options{settings: strict})

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
		e.gateway.SubscribeURL("/reach/*", "reach", url+"/hook")
		e.gateway.Create("/reach/a")
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
		s := e.fixture(t, "reach", nil)
		s.path = "/reach/b"
		harness.NewClient(t, again.URL).Create("/reach/b")
		s.await("refused attempt", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() })
		if n := requests.Load() - before; n > 0 {
			t.Errorf("%d requests reached an address that is not allowed", n)
		}
	})
}
