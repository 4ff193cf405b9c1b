package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"reveille/test/harness"
)

// outboxEvent has the fields of the delivery semantics, Storage.
type outboxEvent struct {
	ID             string          `json:"id"`
	IdempotencyKey string          `json:"idempotency_key"`
	Provider       string          `json:"provider"`
	EventType      string          `json:"event_type"`
	Payload        json.RawMessage `json:"payload"`
	TargetURL      string          `json:"target_url"`
	Status         string          `json:"status"`
	Attempts       int             `json:"attempts"`
	MaxAttempts    int             `json:"max_attempts"`
	NextRetryAt    int64           `json:"next_retry_at"`
	LastAttemptAt  int64           `json:"last_attempt_at"`
	LastError      string          `json:"last_error"`
	LastStatusCode int             `json:"last_status_code"`
	DeliveredAt    int64           `json:"delivered_at"`
	CreatedAt      int64           `json:"created_at"`
	ExpiresAt      int64           `json:"expires_at"`
	Metadata       json.RawMessage `json:"metadata"`
	DeliverAt      int64           `json:"deliver_at"`
	ReplayOf       string          `json:"replay_of"`
	History        []struct {
		At         int64  `json:"at"`
		StatusCode int    `json:"status_code"`
		Error      string `json:"error"`
	} `json:"history"`
}

// outboxTarget takes direct deliveries, and notes them.
type outboxTarget struct {
	*httptest.Server
	mu sync.Mutex
	// came are the headers and bodies of the deliveries. fails is how many are answered with 503 before that. If held
	// is set, answers wait until it is open.
	came  []http.Header
	texts []string
	fails int
	held  gate
	// retryAfter is that header of the answers that fail; empty for none.
	retryAfter string
	// open is how many deliveries wait for their answer, and most how many ever did at once.
	open, most int
}

func newOutboxTarget(t *testing.T) *outboxTarget {
	o := &outboxTarget{}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

func (o *outboxTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost { // it is asked for its consent
		return
	}
	body, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	o.came, o.texts = append(o.came, r.Header), append(o.texts, string(body))
	fails, held := o.fails > 0, o.held
	o.open++
	o.most = max(o.most, o.open)
	if fails {
		o.fails--
		if o.retryAfter != "" {
			w.Header().Set("Retry-After", o.retryAfter)
		}
	}
	o.mu.Unlock()
	if held != nil {
		held.wait(r)
	}
	o.mu.Lock()
	o.open--
	o.mu.Unlock()
	if fails {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// of returns the values of a header of all deliveries of an event, and their bodies.
func (o *outboxTarget) of(id, header string) (values, bodies []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, h := range o.came {
		if h.Get("X-Webhook-Id") == id {
			values, bodies = append(values, h.Get(header)), append(bodies, o.texts[i])
		}
	}
	return values, bodies
}

// handOver hands an event over.
func (e *env) handOver(c *harness.Client, want int, body string) (event outboxEvent) {
	e.t.Helper()
	res := c.Do(http.MethodPost, "/webhooks/deliver", body, "Content-Type", "application/json")
	if res.Status != want {
		e.t.Fatalf("%s: %d %s, want %d", body, res.Status, res.Body, want)
	}
	if want < 300 {
		res.Decode(e.t, &event)
	}
	return event
}

// replays has an event delivered again.
func (e *env) replays(c *harness.Client, id string, want int) (event outboxEvent) {
	e.t.Helper()
	res := c.Do(http.MethodPost, "/webhooks/events/"+id+"/replay", "")
	if res.Status != want {
		e.t.Fatalf("replay of %s: %d %s, want %d", id, res.Status, res.Body, want)
	}
	res.Decode(e.t, &event)
	return event
}

// event returns an event once it has a status.
func (e *env) event(path, status string) (event outboxEvent) {
	e.t.Helper()
	harness.Eventually(e.t, soon, path+" is "+status, func() error {
		res := e.gateway.Do(http.MethodGet, "/webhooks"+path, "")
		if res.Status != http.StatusOK {
			return fmt.Errorf("%d %s", res.Status, res.Body)
		}
		event = outboxEvent{}
		if res.Decode(e.t, &event); event.Status != status {
			return fmt.Errorf("it is %s", res.Body)
		}
		return nil
	})
	return event
}

// TestAnEventIsHandedOverAndDelivered has a client hand events over, at two replicas, and ask what has become of them.
func TestAnEventIsHandedOverAndDelivered(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"REVEILLE_OUTBOX": "/outbox"}
	e := start(t, options{settings: settings})
	second := harness.NewClient(t, harness.StartReveille(t, e.settings(settings)).URL)
	everything := e.subscriber("/**")

	t.Run("it arrives with its headers, and the same key is the same event", func(t *testing.T) {
		target := newOutboxTarget(t)
		body := fmt.Sprintf(`{"target_url":%q,"event_type":"push","provider":"github",`+
			`"payload":{"ref":"main", "n":[1]},"idempotencyKey":"key 1","metadata":{"a":"b"}}`, target.URL+"/hook")
		event := e.handOver(e.gateway, http.StatusAccepted, body)
		done := e.event("/events/"+event.ID, "delivered")
		if !strings.HasPrefix(event.ID, "whe_") || done.Attempts != 1 || done.MaxAttempts != 5 ||
			done.DeliveredAt == 0 || done.LastAttemptAt == 0 || done.ExpiresAt <= done.DeliveredAt ||
			done.LastStatusCode != 200 ||
			string(done.Payload) != `{"ref":"main","n":[1]}` || string(done.Metadata) != `{"a":"b"}` {
			t.Errorf("it is %+v", done)
		}
		for header, want := range map[string]string{
			"X-Webhook-Event": "push", "X-Webhook-Provider": "github", "X-Webhook-Attempt": "1",
			"X-Idempotency-Key": "key%201", "Webhook-Id": event.ID, "Reveille-Stream": "",
		} {
			if values, bodies := target.of(event.ID, header); !slices.Equal(values, []string{want}) ||
				bodies[0] != `{"ref":"main", "n":[1]}` {
				t.Errorf("%s is %q, with the body %q", header, values, bodies)
			}
		}
		for _, c := range []*harness.Client{e.gateway, second} {
			if again := e.handOver(c, http.StatusOK, body); again.ID != event.ID || again.Status != "delivered" {
				t.Errorf("the same again is %+v", again)
			}
		}
		if by := e.event("/idempotency/key%201", "delivered"); by.ID != event.ID {
			t.Errorf("by its key it is %+v", by)
		}
		other := e.gateway.Do(http.MethodPost, "/webhooks/deliver", strings.Replace(body, "main", "other", 1),
			"Content-Type", "application/json")
		if other.Status != http.StatusConflict || !strings.Contains(other.Body, "it has another payload") {
			t.Errorf("another event with that key: %d %s", other.Status, other.Body)
		}
	})

	t.Run("it is retried, and dead in the end", func(t *testing.T) {
		target := newOutboxTarget(t)
		target.fails = 2
		body := fmt.Sprintf(`{"target_url":%q,"event_type":"push","payload":null,"max_attempts":2}`, target.URL)
		event := e.handOver(e.gateway, http.StatusAccepted, body)
		if event.Provider != "" || !strings.HasPrefix(event.IdempotencyKey, "idk_") || event.MaxAttempts != 2 {
			t.Errorf("it is %+v", event)
		}
		dead := e.event("/events/"+event.ID, "dead_letter")
		if dead.Attempts != 2 || dead.LastStatusCode != 503 || dead.LastError != "status 503" || dead.DeliveredAt != 0 {
			t.Errorf("it is %+v", dead)
		}
		if h := dead.History; len(h) != 2 || h[0].Error != "status 503" || h[1].StatusCode != 503 || h[1].At < h[0].At {
			t.Errorf("its history is %+v", h)
		}
		again := e.replays(second, dead.ID, http.StatusAccepted)
		if again.ID == dead.ID || again.ReplayOf != dead.ID || again.IdempotencyKey == dead.IdempotencyKey {
			t.Errorf("it is replayed as %+v", again)
		}
		taken := `{"idempotency_key":"` + dead.IdempotencyKey + `"}`
		if res := second.Do(http.MethodPost, "/webhooks/events/"+dead.ID+"/replay", taken, "Content-Type",
			"application/json"); res.Status != http.StatusConflict {
			t.Errorf("a replay by its own key: %d %s", res.Status, res.Body)
		}
		if done := e.event("/events/"+again.ID, "delivered"); string(done.Payload) != `null` {
			t.Errorf("replayed, it is %+v", done)
		}
		e.event("/events/"+dead.ID, "dead_letter")
		if attempts, _ := target.of(event.ID, "X-Webhook-Attempt"); !slices.Equal(attempts, []string{"1", "2"}) {
			t.Errorf("its attempts are %q", attempts)
		}
		target.mu.Lock()
		target.fails = 1
		target.mu.Unlock()
		event = e.handOver(second, http.StatusAccepted, body)
		if done := e.event("/events/"+event.ID, "delivered"); done.Attempts != 2 || done.LastError != "" ||
			len(done.History) != 2 || done.History[0].Error == "" || done.History[1].Error != "" {
			t.Errorf("after a retry it is %+v", done)
		}
	})

	t.Run("a hundred calls with one key are one event", func(t *testing.T) {
		target := newOutboxTarget(t)
		body := fmt.Sprintf(`{"target_url":%q,"event_type":"e","payload":1,"idempotency_key":"of many"}`, target.URL)
		var calls sync.WaitGroup
		ids := make([]string, 100)
		for i := range ids {
			calls.Go(func() {
				c := []*harness.Client{e.gateway, second}[i%2]
				res, err := c.Try(t.Context(), http.MethodPost, "/webhooks/deliver", body,
					"Content-Type", "application/json")
				var event outboxEvent
				if err != nil || res.Status != http.StatusOK && res.Status != http.StatusAccepted ||
					json.Unmarshal([]byte(res.Body), &event) != nil {
					t.Errorf("%d %s, %v", res.Status, res.Body, err)
				}
				ids[i] = event.ID
			})
		}
		calls.Wait()
		if of := slices.Compact(slices.Sorted(slices.Values(ids))); len(of) != 1 {
			t.Errorf("they are %q", of)
		}
		e.event("/events/"+ids[0], "delivered")
		if came, _ := target.of(ids[0], "X-Webhook-Attempt"); len(came) != 1 {
			t.Errorf("%d deliveries came", len(came))
		}
	})

	t.Run("its streams are for nobody else", func(t *testing.T) {
		later, target := e.subscriber("/**"), newOutboxTarget(t)
		event := e.handOver(e.gateway, http.StatusAccepted,
			fmt.Sprintf(`{"target_url":%q,"event_type":"e","payload":1}`, target.URL))
		e.event("/events/"+event.ID, "delivered")
		for _, f := range []*fixture{everything, later} {
			if wakes := f.worker.Wakes(); len(wakes) != 0 {
				t.Errorf("another subscription got %v", wakes)
			}
		}
		for _, path := range []string{"/outbox", "/outbox/x/1", "/outbox/x/1?subscription=s", "/webhooks/else"} {
			if res := e.gateway.Do(http.MethodPut, path, `{}`, "Content-Type", "application/json"); res.Status != 404 {
				t.Errorf("PUT %s: %d %s", path, res.Status, res.Body)
			}
		}
		if list := e.gateway.Do(http.MethodGet, "/**?subscriptions", ""); strings.Contains(list.Body, "outbox") {
			t.Errorf("the subscriptions are %s", list.Body)
		}
	})
}
