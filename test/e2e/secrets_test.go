package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/test/harness"
)

func TestSecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	const header = "a-secret-of-upstream"
	e := beside(t, options{settings: map[string]string{"REVEILLE_UPSTREAM_HEADERS": "Authorization=" + header}})
	path := "/" + name(t) + "/a"
	f := e.fixture(t, "quiet", harness.NewWorker(t))
	secret := e.gateway.SubscribeURL(path, f.sub.ID, f.worker.URL+"/hook?key=webhook-key").Secret
	f.worker.AnswerStatus(http.StatusInternalServerError)
	e.gateway.Create(path)
	w := f.wake(path, 2)
	e.gateway.RawCallback(w.Callback, w.Token+"x", `{"epoch":1}`)
	f.worker.AnswerDone()
	f.awaitIdle(path, e.streams.Tail(path))
	if err := e.rev.Stop(); err != nil {
		t.Fatal(err)
	}
	log := e.rev.Log()
	if !strings.Contains(log, "quiet") {
		t.Errorf("the log, at debug, does not name the subscription:\n%s", log)
	}
	for what, text := range map[string]string{
		"the token key": harness.TokenKey, "a webhook's secret": secret, "a callback's token": w.Token,
		"a header for upstream":  header,
		"the query of a webhook": "webhook-key",
	} {
		if strings.Contains(log, text) {
			t.Errorf("the log holds %s", what)
		}
	}
}

// TestTheLogHoldsNoSecrets has everything go wrong. In the short form, the harness looks for settings in what every
// Reveille writes, and TestSecretsAreNotLogged for what is made as it runs.
func TestTheLogHoldsNoSecrets(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	const (
		password, upstreamAuth, upstreamKey = "redis-passw0rd-of-this-test", "Bearer upstream-s3cret-of-this-test",
			"api-key-of-this-test"
		clientAuth, webhookKey, webhookPass = "client-s3cret-of-this-test", "hook-k3y-of-this-test",
			"hook-passw0rd-of-this-test"
	)
	redis := ownRedis(t)
	ref := harness.StartRefServer(t, harness.RefOptions{})
	allow := func() {
		for _, server := range redis.servers {
			err := server.Client().Do(t.Context(), "ACL", "SETUSER", "reveille", "on", ">"+password, "~*", "&*",
				"+@all").Err()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	allow()
	e := &env{t: t, redis: redis, ref: ref}
	e.rev = harness.StartReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": ref.StreamRoot, "REVEILLE_REDIS_URL": redis.as("reveille:" + password),
		"REVEILLE_UPSTREAM_HEADERS": "Authorization=" + upstreamAuth + ",X-Api-Key=" + upstreamKey,
		"REVEILLE_LOG_LEVEL":        "debug", "REVEILLE_WAKING_TIMEOUT": "1s", "REVEILLE_LIVENESS_TIMEOUT": "1s",
		"REVEILLE_TAIL_CHECK": "200ms",
	})
	e.streams, e.gateway = harness.NewClient(t, ref.StreamRoot), harness.NewClient(t, e.rev.URL)
	secrets := map[string]string{
		"the token key": harness.TokenKey, "the password of Redis": password,
		"the upstream's Authorization": upstreamAuth,
		"the upstream's key":           upstreamKey, "a client's Authorization": clientAuth,
		"the key in a webhook's query":      webhookKey,
		"the password of a refused webhook": webhookPass,
	}

	// Wakes that succeed, that fail in each way, and callbacks of each kind.
	good := e.subscribed(t)
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
	bad, hung := e.subscribed(t), make(gate)
	keyed := e.gateway.SubscribeURL(bad.folder+"/*", "keyed", bad.worker.URL+"/hook?key="+webhookKey)
	bad.worker.Trust("keyed", keyed.Secret)
	bad.answers(withRaw(""), withStatus(http.StatusInternalServerError), withRaw("nonsense\r\n"),
		withStatus(http.StatusFound, "Location", "/?key="+webhookKey),
		func(_ http.ResponseWriter, r *http.Request) { hung.wait(r) })
	bad.begin()
	bad.worker.Wake(6)
	e.gateway.SubscribeURL(bad.folder+"/*", "dead", "http://127.0.0.1:9/hook?key="+webhookKey)
	for _, webhook := range []string{
		"ftp://user:" + webhookPass + "@example.com",
		"http://user:" + webhookPass + "@127.0.0.1/", "http://user:" + webhookPass + "@%zz/",
	} {
		res := e.gateway.PutSubscription("/refused/*", "refused", webhookBody(webhook))
		if res.Status != http.StatusBadRequest {
			t.Errorf("PUT of %s: %d %s", webhook, res.Status, res.Body)
		}
	}
	bad.gateway.Append(bad.path, `"for the dead"`)

	// The stream server goes and comes back, and so does Redis, at first without the user that it knew.
	ref.Kill()
	res := e.gateway.Do(http.MethodPost, "/through/the/gateway?key="+webhookKey, "{}", "Authorization",
		"Bearer "+clientAuth, "Content-Type", "application/json")
	if res.Status != http.StatusBadGateway {
		t.Errorf("a write to a dead stream server: %d %s", res.Status, res.Body)
	}
	harness.Eventually(t, soon, "upstream found down",
		harness.True(func() bool { return strings.Contains(e.rev.Log(), "upstream did not answer") }, "not yet"))
	ref.Restart()
	redis.Kill()
	harness.Eventually(t, soon, "unready",
		harness.True(func() bool { return e.rev.Ready(t.Context()) != nil }, "it is ready"))
	redis.Restart()
	e.gateway.Do(http.MethodGet, "/**?subscriptions", "", "Authorization", "Bearer "+clientAuth)
	allow()
	harness.Eventually(t, soon, "ready again", func() error { return e.rev.Ready(t.Context()) })

	for _, s := range []*fixture{good, bad} {
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

	t.Run("a run with subscriptions, callbacks and failures logs no secret, token, "+
		"key, Authorization or password", func(t *testing.T) {
		checkLog(t, e.rev.Log(), secrets, "subscription created", "webhook delivery failed", "callback refused",
			"upstream did not answer", "redis", "stopped")
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
			"REVEILLE_REDIS_URL":        strings.Replace(redis.as("reveille:"+password), "://", "//", 1),
			"REVEILLE_UPSTREAM_URL":     "http://user:" + password + "@127.0.0.1:1",
			"REVEILLE_UPSTREAM_HEADERS": upstreamAuth, "REVEILLE_TOKEN_KEY": upstreamKey,
			"REVEILLE_PUBLIC_URL": "http://user:" + password + "@127.0.0.1:1",
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
