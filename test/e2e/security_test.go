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
	"time"

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
	for what, body := range map[string]string{"missing": `{}`, "empty": `{"webhook":""}`, "null": `{"webhook":null}`, "a number": `{"webhook":7}`} {
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
	strict := map[string]string{"REVEILLE_ALLOW_INSECURE_WEBHOOKS": "false", "SSL_CERT_FILE": ca, "REVEILLE_WEBHOOK_ALLOW_CIDRS": "127.0.0.1/32,10.1.0.0/16,fd00:1::/64"}
	e := start(t, options{settings: strict})

	t.Run("REVEILLE_WEBHOOK_ALLOW_CIDRS lets exactly its ranges through", func(t *testing.T) {
		for webhook, allowed := range map[string]bool{
			"https://127.0.0.1/hook": true, "https://[::ffff:127.0.0.1]/hook": true, "https://10.1.0.0/hook": true,
			"https://10.1.255.255/hook": true, "https://[fd00:1::1]/hook": true,
			"https://127.0.0.2/hook": false, "https://127.0.0.0/hook": false, "https://10.0.255.255/hook": false, "https://10.2.0.0/hook": false,
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

	t.Run("a wake reaches an allowed address, and once that is allowed no more, the connection is refused", func(t *testing.T) {
		e.gateway.SubscribeURL("/reach/*", "reach", url+"/hook")
		e.gateway.Create("/reach/a")
		harness.Eventually(t, soon, "a wake over HTTPS", harness.True(func() bool { return requests.Load() > 0 }, "none came"))
		if err := e.rev.Stop(); err != nil {
			t.Fatal(err)
		}
		again := harness.StartReveille(t, map[string]string{
			"REVEILLE_UPSTREAM_URL": e.ref.StreamRoot, "REVEILLE_REDIS_URL": e.redis.URL, "REVEILLE_ALLOW_INSECURE_WEBHOOKS": "false", "SSL_CERT_FILE": ca,
		})
		before := requests.Load()
		s := &trial{env: *e, sub: harness.Subscription{ID: "reach"}, path: "/reach/b"}
		s.t = t
		harness.NewClient(t, again.URL).Create("/reach/b")
		s.until("refused attempt", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() })
		if n := requests.Load() - before; n > 0 {
			t.Errorf("%d requests reached an address that is not allowed", n)
		}
	})
}

func TestTheLogHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	const (
		password, upstreamAuth, upstreamKey = "redis-passw0rd-of-this-test", "Bearer upstream-s3cret-of-this-test", "api-key-of-this-test"
		clientAuth, webhookKey, webhookPass = "client-s3cret-of-this-test", "hook-k3y-of-this-test", "hook-passw0rd-of-this-test"
	)
	redis := ownRedis(t)
	ref := harness.StartRefServer(t, harness.RefOptions{})
	allow := func() {
		for _, server := range redis.servers {
			if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "reveille", "on", ">"+password, "~*", "&*", "+@all").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	allow()
	e := &env{t: t, redis: redis, ref: ref}
	e.rev = harness.StartReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": ref.StreamRoot, "REVEILLE_REDIS_URL": redis.as("reveille:" + password),
		"REVEILLE_UPSTREAM_HEADERS": "Authorization=" + upstreamAuth + ",X-Api-Key=" + upstreamKey,
		"REVEILLE_LOG_LEVEL":        "debug", "REVEILLE_WAKING_TIMEOUT": "1s", "REVEILLE_LIVENESS_TIMEOUT": "1s", "REVEILLE_TAIL_CHECK": "200ms",
	})
	e.streams, e.gateway = harness.NewClient(t, ref.StreamRoot), harness.NewClient(t, e.rev.URL)
	secrets := map[string]string{
		"the token key": harness.TokenKey, "the password of Redis": password, "the upstream's Authorization": upstreamAuth,
		"the upstream's key": upstreamKey, "a client's Authorization": clientAuth, "the key in a webhook's query": webhookKey,
		"the password of a refused webhook": webhookPass,
	}

	// Wakes that succeed, that fail in each way, and callbacks of each kind.
	good := e.trial(t)
	good.begin()
	w := good.worker.Wake(1)
	answers := []harness.CallbackAnswer{
		good.gateway.Callback(w, w.Claim(false, good.ack(beyond))),
		good.gateway.Callback(w, harness.Callback{Epoch: w.Epoch, WakeID: "w_other"}),
		good.gateway.Callback(w, harness.Callback{Epoch: 9}),
		good.gateway.RawCallback(w.Callback, w.Token+"x", "{}"),
		good.gateway.RawCallback(w.Callback, w.Token, `{"epoch":`),
		good.gateway.Callback(w, w.Claim(true)),
	}
	bad, hung := e.trial(t), make(gate)
	keyed := e.gateway.SubscribeURL(bad.folder+"/*", "keyed", bad.worker.URL+"/hook?key="+webhookKey)
	bad.worker.Trust("keyed", keyed.Secret)
	bad.answers(withRaw("", 0), withStatus(http.StatusInternalServerError), withRaw("nonsense\r\n", 0), withStatus(http.StatusFound, "Location", "/?key="+webhookKey),
		func(_ http.ResponseWriter, r *http.Request) { hung.wait(r) })
	bad.begin()
	bad.worker.Wake(6)
	e.gateway.SubscribeURL(bad.folder+"/*", "dead", "http://127.0.0.1:9/hook?key="+webhookKey)
	for _, webhook := range []string{"ftp://user:" + webhookPass + "@example.com", "http://user:" + webhookPass + "@127.0.0.1/", "http://user:" + webhookPass + "@%zz/"} {
		if res := e.gateway.PutSubscription("/refused/*", "refused", webhookBody(webhook)); res.Status != http.StatusBadRequest {
			t.Errorf("PUT of %s: %d %s", webhook, res.Status, res.Body)
		}
	}
	bad.gateway.Append(bad.path, `"for the dead"`)

	// The stream server goes and comes back, and so does Redis, at first without the user that it knew.
	ref.Kill()
	res := e.gateway.Do(http.MethodPost, "/through/the/gateway?key="+webhookKey, "{}", "Authorization", "Bearer "+clientAuth, "Content-Type", "application/json")
	if res.Status != http.StatusBadGateway {
		t.Errorf("a write to a dead stream server: %d %s", res.Status, res.Body)
	}
	harness.Eventually(t, soon, "upstream found down", harness.True(func() bool { return strings.Contains(e.rev.Log(), "upstream gave no answer") }, "not yet"))
	ref.Restart()
	redis.Kill()
	harness.Eventually(t, soon, "unready", harness.True(func() bool { return e.rev.Ready(t.Context()) != nil }, "it is ready"))
	redis.Restart()
	e.gateway.Do(http.MethodGet, "/**?subscriptions", "", "Authorization", "Bearer "+clientAuth)
	allow()
	harness.Eventually(t, soon, "ready again", func() error { return e.rev.Ready(t.Context()) })

	for _, s := range []*trial{good, bad} {
		secrets["the secret of "+s.sub.ID] = s.sub.Secret
		for _, w := range s.worker.Wakes() {
			secrets["the token of "+w.String()] = w.Token
		}
	}
	secrets["the secret of keyed"] = keyed.Secret
	for _, a := range answers {
		if a.Token != "" {
			secrets["the token of an answer "+a.Error.Code] = a.Token
		}
	}
	close(hung)
	if err := e.rev.Stop(); err != nil {
		t.Fatal(err)
	}

	t.Run("a run with subscriptions, callbacks and failures logs no secret, token, key, Authorization or password", func(t *testing.T) {
		checkLog(t, e.rev.Log(), secrets, "subscription created", "webhook delivery failed", "callback refused", "upstream gave no answer", "redis", "stopped")
	})
	t.Run("a start that Redis refuses logs no password", func(t *testing.T) {
		r := harness.NewReveille(t, map[string]string{
			"REVEILLE_UPSTREAM_URL": ref.StreamRoot, "REVEILLE_REDIS_URL": redis.as("reveille:wrong-" + password),
		})
		r.Launch()
		ended(t, r)
		checkLog(t, r.Log(), secrets, "REVEILLE_REDIS_URL")
	})
	t.Run("settings that are wrong are named without what they keep secret", func(t *testing.T) {
		for name, value := range map[string]string{
			"REVEILLE_REDIS_URL": strings.Replace(redis.as("reveille:"+password), "://", "//", 1), "REVEILLE_UPSTREAM_URL": "http://user:" + password + "@127.0.0.1:1",
			"REVEILLE_UPSTREAM_HEADERS": upstreamAuth, "REVEILLE_TOKEN_KEY": upstreamKey, "REVEILLE_PUBLIC_URL": "http://user:" + password + "@127.0.0.1:1",
		} {
			settings := map[string]string{"REVEILLE_UPSTREAM_URL": ref.StreamRoot, "REVEILLE_REDIS_URL": redis.URL}
			settings[name] = value
			r := harness.NewReveille(t, settings)
			r.Launch()
			ended(t, r)
			checkLog(t, r.Log(), secrets, name)
		}
	})
}

// ended waits for the end of a Reveille that cannot start.
func ended(t *testing.T, r *harness.Reveille) {
	t.Helper()
	select {
	case <-r.Done():
		if r.Err() == nil {
			t.Error("Reveille ended as if all were well")
		}
	case <-time.After(soon):
		t.Fatalf("Reveille did not end:\n%s", r.Log())
	}
}

// checkLog makes sure that a log has what shows that it is the right one, and no secret.
func checkLog(t *testing.T, log string, secrets map[string]string, want ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(log, text) {
			t.Errorf("the log has nothing of %q, so it shows nothing:\n%s", text, log)
		}
	}
	for what, secret := range secrets {
		if secret == "" {
			t.Errorf("%s is empty", what)
			continue
		}
		// A part is as bad as the whole.
		for _, part := range strings.FieldsFunc(secret, func(r rune) bool { return r == ' ' || r == '.' }) {
			if len(part) >= 12 && strings.Contains(log, part) {
				t.Errorf("the log holds %s", what)
				break
			}
		}
	}
}
