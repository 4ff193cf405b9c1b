package workers

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"reveille/test/harness"
)

// TestWakesSignedByStandardWebhooksPassItsLibrary holds that a subscription may choose Standard Webhooks, that its own
// library takes each attempt for rightly signed and nothing else, and that all attempts of a wake have one id.
func TestWakesSignedByStandardWebhooksPassItsLibrary(t *testing.T) {
	server, redis := harness.StartRefServer(t, harness.RefOptions{}), harness.StartRedis(t)
	reveille := harness.StartReveille(t, map[string]string{
		"REVEILLE_UPSTREAM_URL": server.StreamRoot, "REVEILLE_REDIS_URL": redis.URL,
	})
	type attempt struct {
		header http.Header
		body   []byte
		wakeID string
	}
	var (
		mu       sync.Mutex
		attempts []attempt
	)
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var wake struct {
			WakeID string `json:"wake_id"`
		}
		if err != nil || json.Unmarshal(body, &wake) != nil {
			t.Errorf("a wake that cannot be read: %v, %s", err, body)
		}
		mu.Lock()
		defer mu.Unlock()
		attempts = append(attempts, attempt{r.Header.Clone(), body, wake.WakeID})
		if len(attempts) == 1 {
			w.WriteHeader(http.StatusInternalServerError) // it is sent again
			return
		}
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	t.Cleanup(worker.Close)

	api, streams := harness.NewClient(t, reveille.URL), harness.NewClient(t, server.StreamRoot)
	asked := `{"webhook":"` + worker.URL + `","signature":"standard-webhooks"}`
	var sub struct {
		Secret    string `json:"webhook_secret"`
		Signature string `json:"signature"`
	}
	api.PutSubscription("/agents/*", "s", asked).Decode(t, &sub)
	if sub.Signature != "standard-webhooks" {
		t.Fatalf("it was created with the signature %q", sub.Signature)
	}
	api.Create("/agents/task-1")
	streams.Append("/agents/task-1", `{"n":1}`)
	arrived := func() []attempt {
		mu.Lock()
		defer mu.Unlock()
		return attempts
	}
	harness.Eventually(t, harness.Wait, "the wake is sent again",
		harness.True(func() bool { return len(arrived()) > 1 }, "only one attempt"))

	library := harness.NewClient(t, script("host-standardwebhooks.mjs")(t, sub.Secret, "http://127.0.0.1:1").URL)
	judge := func(h http.Header, body []byte) int {
		var header []string
		for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
			header = append(header, name, h.Get(name))
		}
		return library.Do(http.MethodPost, "/", string(body), header...).Status
	}
	for i, a := range arrived() {
		if status := judge(a.header, a.body); status != http.StatusOK {
			t.Errorf("attempt %d: the library says %d of %v", i+1, status, a.header)
		}
		if status := judge(a.header, bytes.Replace(a.body, []byte(`"epoch":`), []byte(`"epoch":1`), 1)); status != 401 {
			t.Errorf("attempt %d, changed on its way: the library says %d", i+1, status)
		}
		if id := a.header.Get("Webhook-Id"); id != a.wakeID || id == "" {
			t.Errorf("attempt %d has the id %q, want that of the wake, %q", i+1, id, a.wakeID)
		}
	}
	if a := arrived(); a[0].wakeID != a[1].wakeID {
		t.Errorf("two attempts of one wake have the ids %q and %q", a[0].wakeID, a[1].wakeID)
	}

	again := api.PutSubscription("/agents/*", "s", asked)
	if again.Status != http.StatusOK || !strings.Contains(again.Body, `"signature":"standard-webhooks"`) {
		t.Errorf("the same again: status %d, %s", again.Status, again.Body)
	}
	other := api.PutSubscription("/agents/*", "s", `{"webhook":"`+worker.URL+`"}`)
	if other.Status != http.StatusConflict {
		t.Errorf("with the other signature: status %d, want 409", other.Status)
	}
}
