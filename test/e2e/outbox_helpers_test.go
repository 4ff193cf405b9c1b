package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// direct is the body of a hand-over. Without a key, Reveille makes one.
func direct(target, key string, payload any) string {
	fields := map[string]any{"target_url": target, "event_type": "push", "payload": payload}
	if key != "" {
		fields["idempotency_key"] = key
	}
	text, _ := json.Marshal(fields)
	return string(text)
}

// post hands an event over and returns the answer as it is.
func (e *env) post(body string) harness.Response {
	e.t.Helper()
	return e.gateway.Do(http.MethodPost, "/webhooks/deliver", body, "Content-Type", "application/json")
}

// repeats hands an event over as OUTBOX.md asks clients to: again after each 503.
func (e *env) repeats(body string) (event outboxEvent) {
	e.t.Helper()
	harness.Eventually(e.t, soon, "it is handed over", func() error {
		res := e.post(body)
		switch res.Status {
		case http.StatusAccepted, http.StatusOK:
		case http.StatusServiceUnavailable:
			return fmt.Errorf("%d %s", res.Status, res.Body)
		default:
			e.t.Fatalf("%s: %d %s", body, res.Status, res.Body)
		}
		event = outboxEvent{}
		res.Decode(e.t, &event)
		return nil
	})
	return event
}

// wantUnavailable checks that a client is asked to try again.
func wantUnavailable(t *testing.T, what string, res harness.Response) {
	t.Helper()
	refusal(t, what, res, http.StatusServiceUnavailable, fsm.CodeUnavailable)
	if res.Header.Get("Retry-After") == "" {
		t.Errorf("%s is answered without Retry-After", what)
	}
}

// inOneStream says whether two events of one target lie in the same stream.
func inOneStream(a, b outboxEvent) bool {
	return a.ID != "" && b.ID != "" && placeOf(a) == placeOf(b)
}

// placeOf is the end of the ID of an event, which says until when its stream takes events, and which one it is.
func placeOf(event outboxEvent) string { return event.ID[len(event.ID)-9:] }

// streamOfEvent is the path of the stream that an event lies in.
func streamOfEvent(root string, event outboxEvent) string {
	sum, place := sha256.Sum256([]byte(root+"\n"+event.TargetURL)), placeOf(event)
	return root + "/" + hex.EncodeToString(sum[:12]) + "/" + place[:8] + "-" + place[8:]
}

// copies returns how often an event lies in its stream below a path.
func (e *env) copies(root string, event outboxEvent) (n int) {
	e.t.Helper()
	messages, _ := e.streams.Read(streamOfEvent(root, event), "-1")
	for _, text := range messages {
		var of struct{ ID string }
		if json.Unmarshal(text, &of) == nil && of.ID == event.ID {
			n++
		}
	}
	return n
}

// wantOnce checks that the target gets an event, and not again by the time that a later event of the same stream has
// arrived: that one lies behind all copies of the event.
func (e *env) wantOnce(target *outboxTarget, event outboxEvent) {
	e.t.Helper()
	e.event("/events/"+event.ID, "delivered")
	var later []outboxEvent
	for len(later) == 0 || !inOneStream(later[len(later)-1], event) {
		later = append(later, e.repeats(direct(event.TargetURL, "", "later")))
	}
	for _, l := range later { // none is under way when the test goes on
		e.event("/events/"+l.ID, "delivered")
	}
	if came, _ := target.of(event.ID, "X-Webhook-Attempt"); len(came) != 1 {
		e.t.Errorf("%s was delivered by %d requests, want 1", event.ID, len(came))
	}
}

// fillLanes has all ten streams of a target exist, with nothing left to deliver.
func (e *env) fillLanes(target string) {
	e.t.Helper()
	filled := map[byte]bool{}
	for len(filled) < 10 {
		event := e.repeats(direct(target, "", "first"))
		e.event("/events/"+event.ID, "delivered")
		filled[event.ID[len(event.ID)-1]] = true
	}
}

// handed is the faults of a stream server for hand-overs below a path.
type handed struct {
	root string
	// taken says that an event lies in its stream.
	taken chan struct{}
	// open lets through what is held.
	open gate
}

func newHanded(root string) *handed {
	return &handed{root: root, taken: make(chan struct{}, 1), open: make(gate)}
}

// holdReads keeps back all requests but writes. So Reveille hears of no event by itself.
func (h *handed) holdReads(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	if strings.Contains(r.URL.Path, h.root+"/") && r.Method != http.MethodPost && r.Method != http.MethodPut {
		h.open.wait(r)
	}
	forward.ServeHTTP(w, r)
}

// holdAnswers is holdReads that also keeps back the answers to appends which the stream server has taken.
func (h *handed) holdAnswers(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	if !strings.Contains(r.URL.Path, h.root+"/") || r.Method != http.MethodPost {
		h.holdReads(w, r, forward)
		return
	}
	answer := httptest.NewRecorder()
	forward.ServeHTTP(answer, r)
	if answer.Code < 300 {
		select {
		case h.taken <- struct{}{}:
		default:
		}
		h.open.wait(r)
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// loseAnswers answers appends with 502 once the stream server has taken them.
func (h *handed) loseAnswers(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	if !strings.Contains(r.URL.Path, h.root+"/") || r.Method != http.MethodPost {
		forward.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	if forward.ServeHTTP(answer, r); answer.Code < 300 {
		answer.Code = http.StatusBadGateway
	}
	w.WriteHeader(answer.Code)
}

// keysLike returns the names in Redis that match a pattern.
func (d *database) keysLike(pattern string) map[string]bool {
	d.t.Helper()
	found := map[string]bool{}
	for _, server := range d.servers {
		keys := server.Client().Scan(d.t.Context(), 0, pattern, 1000).Iterator()
		for keys.Next(d.t.Context()) {
			found[keys.Val()] = true
		}
		if err := keys.Err(); err != nil {
			d.t.Fatal(err)
		}
	}
	return found
}

// loseKey takes an idempotency key away from Redis.
func (d *database) loseKey(key string) {
	d.t.Helper()
	found := d.keysLike("rv:{*}:key:" + key)
	for name := range found {
		if err := d.Client().Del(d.t.Context(), name).Err(); err != nil {
			d.t.Fatal(err)
		}
	}
	if len(found) != 1 {
		d.t.Fatalf("the keys of %q are %v, want one", key, found)
	}
}
