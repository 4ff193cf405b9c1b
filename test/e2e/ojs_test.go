package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/test/harness"
)

// ojsClient is a client of OJS Webhook Delivery, written after its text and nothing else.
type ojsClient struct {
	t    *testing.T
	root string
}

// ojsSubscription has the fields of section 5.1.
type ojsSubscription struct {
	ID        string            `json:"id,omitempty"`
	URL       string            `json:"url,omitempty"`
	Events    []string          `json:"events,omitempty"`
	Filter    *ojsFilter        `json:"filter,omitempty"`
	Active    *bool             `json:"active,omitempty"`
	Secret    string            `json:"secret,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	CreatedAt time.Time         `json:"created_at,omitzero"`
}

// ojsFilter has the criteria of section 5.2.
type ojsFilter struct {
	Queues   []string `json:"queues,omitempty"`
	JobTypes []string `json:"job_types,omitempty"`
}

// do sends a request of section 10, and decodes its answer.
func (c ojsClient) do(method, path string, want int, body, answer any) {
	c.t.Helper()
	var text []byte
	var err error
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			c.t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.root+"/ojs/v1/webhooks"+path, bytes.NewReader(text))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		c.t.Fatalf("%s %s: %d %s, %v, want %d", method, path, res.StatusCode, got, err, want)
	}
	if answer != nil {
		if err := json.Unmarshal(got, answer); err != nil {
			c.t.Fatalf("%s %s: %s, %v", method, path, got, err)
		}
	}
}

// ojsEndpoint is a webhook endpoint that verifies as section 8.2 has it, with every secret that it knows.
type ojsEndpoint struct {
	t       *testing.T
	server  *httptest.Server
	mu      sync.Mutex
	secrets []string
	// taken are the types and ids of the events that were verified, without tests; refused is why others were not.
	// bodies are those of taken.
	taken, refused, bodies []string
	tests                  int
	// failing is the status that all is answered with, if it is not 0, and failed the last delivery that was.
	failing int
	failed  string
}

func newOJSEndpoint(t *testing.T) *ojsEndpoint {
	e := &ojsEndpoint{t: t}
	e.server = httptest.NewServer(e)
	t.Cleanup(e.server.Close)
	return e
}

func (e *ojsEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if why := e.judge(r, body); why != "" {
		e.refused = append(e.refused, why)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var event struct{ SpecVersion, ID, Type, Source, Time string }
	if json.Unmarshal(body, &event) != nil || event.SpecVersion != "1.0" || event.ID == "" || event.Source == "" ||
		event.Time == "" || event.Type != r.Header.Get("X-OJS-Event-Type") {
		e.refused = append(e.refused, "no envelope: "+string(body))
	}
	switch {
	case e.failing != 0:
		e.failed = r.Header.Get("X-OJS-Delivery-ID")
		w.WriteHeader(e.failing)
	case event.Type == "webhook.test":
		e.tests++
	default:
		e.taken = append(e.taken, event.Type+" "+event.ID)
		e.bodies = append(e.bodies, string(body))
	}
	_, _ = io.WriteString(w, "OK")
}

// judge says why a request is not to be believed; mu is held.
func (e *ojsEndpoint) judge(r *http.Request, body []byte) string {
	timestamp := r.Header.Get("X-OJS-Timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return "the time is " + timestamp
	}
	if r.Header.Get("Content-Type") != "application/json" || r.Method != http.MethodPost ||
		!strings.HasPrefix(r.UserAgent(), "OJS-Webhook/1.0") || r.Header.Get("X-OJS-Delivery-ID") == "" ||
		!strings.HasPrefix(r.Header.Get("X-OJS-Subscription-ID"), "sub_") {
		return fmt.Sprintf("the header is %v", r.Header)
	}
	for _, secret := range e.secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(timestamp + "."))
		mac.Write(body)
		expected := hex.EncodeToString(mac.Sum(nil))
		for one := range strings.SplitSeq(r.Header.Get("X-OJS-Signature"), ",") {
			if hmac.Equal([]byte(strings.TrimPrefix(one, "sha256=")), []byte(expected)) {
				return ""
			}
		}
	}
	return "no signature is right: " + r.Header.Get("X-OJS-Signature")
}

func (e *ojsEndpoint) knows(secrets ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.secrets = secrets
}

func (e *ojsEndpoint) testsTaken() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tests
}

// fails has the endpoint answer with a status from now on, or, if it is 0, take what comes.
func (e *ojsEndpoint) fails(status int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failing, e.failed = status, ""
}

// awaitFailed waits until the endpoint has not taken a delivery, and returns its ID.
func (e *ojsEndpoint) awaitFailed() (delivery string) {
	e.t.Helper()
	harness.Eventually(e.t, soon, "a delivery has failed", func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if delivery = e.failed; delivery == "" {
			return errors.New("none came")
		}
		return nil
	})
	return delivery
}

// awaitDelivery waits until a delivery is listed with a status. The text has no shape for the list of deliveries (10),
// nor names for what has become of them but those of the metrics (11.2).
func (c ojsClient) awaitDelivery(status, id string) {
	c.t.Helper()
	harness.Eventually(c.t, soon, id+" is listed as "+status, func() error {
		type delivery struct{ ID, Status string }
		var list struct{ Deliveries []delivery }
		c.do(http.MethodGet, "/deliveries?status="+status, http.StatusOK, nil, &list)
		if !slices.Contains(list.Deliveries, delivery{id, status}) {
			return fmt.Errorf("listed are %v", list.Deliveries)
		}
		return nil
	})
}

// await waits until the endpoint has taken just these events, in whatever order they came (7.4).
func (e *ojsEndpoint) await(want ...string) {
	e.t.Helper()
	harness.Eventually(e.t, soon, fmt.Sprintf("%q are taken", want), func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		taken := slices.Sorted(slices.Values(e.taken))
		if !slices.Equal(slices.Compact(taken), slices.Sorted(slices.Values(want))) {
			return fmt.Errorf("taken are %q, refused %q", e.taken, e.refused)
		}
		return nil
	})
}

// TestAClientOfOpenJobSpec makes a subscription, gets events, tests it, retries what has failed and what is dead,
// rotates its secret, deactivates it, changes it and deletes it, with nothing but what the text of OJS Webhook Delivery
// says.
func TestAClientOfOpenJobSpec(t *testing.T) {
	t.Parallel()
	folder := "/" + name(t)
	e := beside(t, options{settings: map[string]string{
		"REVEILLE_OJS": "true", "REVEILLE_OJS_STREAMS": folder + "/**",
	}})
	c, endpoint := ojsClient{t, e.rev.URL}, newOJSEndpoint(t)
	jobs := folder + "/jobs"
	e.gateway.Create(jobs)
	emitIn := func(queue, kind, id string) string {
		t.Helper()
		const event = `{"specversion":"1.0","id":%q,"type":%q,"source":"ojs://test/workers/1",` +
			`"time":"2026-02-15T22:00:00Z","data":{"job_type":"payment.process","queue":%q,"text":"é"}}`
		e.gateway.Append(jobs, fmt.Sprintf(event, id, kind, queue))
		return kind + " " + id
	}
	emit := func(kind, id string) string {
		t.Helper()
		return emitIn("payments", kind, id)
	}
	yes, no := true, false

	// 6.1 to 6.3.
	c.do(http.MethodPost, "/subscriptions", http.StatusBadRequest, ojsSubscription{URL: endpoint.server.URL}, nil)
	asked := ojsSubscription{
		URL: endpoint.server.URL, Events: []string{"job.*"}, Metadata: map[string]string{"owner": "platform-team"},
		Filter: &ojsFilter{Queues: []string{"payments", "billing"}, JobTypes: []string{"payment.process"}},
	}
	var made, shown ojsSubscription
	c.do(http.MethodPost, "/subscriptions", http.StatusCreated, asked, &made)
	secret, one := made.Secret, "/subscriptions/"+made.ID
	if !strings.HasPrefix(made.ID, "sub_") || secret == "" || made.Active == nil || !*made.Active ||
		made.CreatedAt.IsZero() || made.URL != asked.URL || !maps.Equal(made.Metadata, asked.Metadata) {
		t.Errorf("made is %s", deref(made))
	}
	made.Secret = ""
	c.do(http.MethodGet, one, http.StatusOK, nil, &shown)
	if deref(shown) != deref(made) {
		t.Errorf("shown is %s, want %s", deref(shown), deref(made))
	}

	// 5.3 and 8.
	endpoint.knows(secret)
	emitIn("mail", "job.completed", "evt_of_another_queue")
	emit("workflow.completed", "evt_of_another_type")
	taken := []string{emit("job.completed", "evt_1"), emitIn("billing", "job.failed", "evt_2")}
	endpoint.await(taken...)

	// 6.6.
	var tested struct {
		Success    bool   `json:"success"`
		StatusCode int    `json:"status_code"`
		Body       string `json:"response_body"`
	}
	c.do(http.MethodPost, one+"/test", http.StatusOK, nil, &tested)
	if !tested.Success || tested.StatusCode != http.StatusOK || tested.Body != "OK" || endpoint.testsTaken() != 1 {
		t.Errorf("the test: %+v, of which %d came", tested, endpoint.testsTaken())
	}

	// 10: what has failed, and would be tried again in half a minute (7.2), is found and retried by hand; so is what is
	// dead.
	for _, tc := range []struct {
		status  int
		becomes string
	}{{http.StatusServiceUnavailable, "failed"}, {http.StatusBadRequest, "dead"}} {
		endpoint.fails(tc.status)
		emitted := emit("job.failed", "evt_"+tc.becomes)
		id := endpoint.awaitFailed()
		c.awaitDelivery(tc.becomes, id)
		var known struct {
			SubscriptionID string `json:"subscription_id"`
			StatusCode     int    `json:"status_code"`
		}
		c.do(http.MethodGet, "/deliveries/"+id, http.StatusOK, nil, &known)
		if known.SubscriptionID != made.ID || known.StatusCode != tc.status {
			t.Errorf("%s is of %s, and was answered with %d", id, known.SubscriptionID, known.StatusCode)
		}
		endpoint.fails(0)
		c.do(http.MethodPost, "/deliveries/"+id+"/retry", http.StatusAccepted, nil, nil)
		taken = append(taken, emitted)
		endpoint.await(taken...)
		c.awaitDelivery("success", id)
		c.do(http.MethodPost, "/deliveries/"+id+"/retry", http.StatusConflict, nil, nil)
	}
	c.do(http.MethodPost, "/deliveries/evt_none/retry", http.StatusNotFound, nil, nil)

	// 8.3: whoever knows one of the two secrets verifies.
	var rotated struct{ Secret string }
	c.do(http.MethodPost, one+"/rotate-secret", http.StatusOK, nil, &rotated)
	taken = append(taken, emit("job.completed", "evt_3"))
	endpoint.await(taken...)
	endpoint.knows(rotated.Secret)
	taken = append(taken, emit("job.completed", "evt_4"))
	endpoint.await(taken...)

	// 6.4: what comes while it is not active comes later.
	c.do(http.MethodPatch, one, http.StatusOK, ojsSubscription{Active: &no}, &shown)
	if *shown.Active || shown.Secret != "" || shown.URL != asked.URL {
		t.Errorf("deactivated it is %s", deref(shown))
	}
	held := emit("job.completed", "evt_5")
	endpoint.await(taken...)
	taken = append(taken, held)
	c.do(http.MethodPatch, one, http.StatusOK, ojsSubscription{Active: &yes}, &shown)
	endpoint.await(taken...)

	// 6.4, with another endpoint.
	second := newOJSEndpoint(t)
	second.knows(rotated.Secret)
	c.do(http.MethodPatch, one, http.StatusOK, ojsSubscription{
		URL: second.server.URL, Events: []string{"workflow.failed"},
	}, &shown)
	emit("job.completed", "evt_of_before")
	second.await(emit("workflow.failed", "evt_6"))

	// 6.5: another subscription goes on.
	third := newOJSEndpoint(t)
	asked.URL = third.server.URL
	c.do(http.MethodPost, "/subscriptions", http.StatusCreated, asked, &made)
	third.knows(made.Secret)
	c.do(http.MethodDelete, one, http.StatusNoContent, nil, nil)
	c.do(http.MethodGet, one, http.StatusNotFound, nil, nil)
	third.await(emit("job.completed", "evt_7"))
	second.await("workflow.failed evt_6")
	endpoint.await(taken...)
	for _, e := range []*ojsEndpoint{endpoint, second, third} {
		e.mu.Lock()
		if len(e.refused) > 0 {
			t.Errorf("refused are %q", e.refused)
		}
		e.mu.Unlock()
	}
}

// deref has the texts of a subscription, for messages.
func deref(s ojsSubscription) string {
	text, _ := json.Marshal(s)
	return string(text)
}
