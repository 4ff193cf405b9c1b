package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync/atomic"
	"testing"

	"reveille/test/harness"
)

// TestAClientOfTheSpecificationNeedsNoMore has clients that know only the delivery semantics use all eight resources.
func TestAClientOfTheSpecificationNeedsNoMore(t *testing.T) {
	t.Parallel()
	run := func(name string, client func(t *testing.T, api string)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, options{settings: map[string]string{"REVEILLE_OUTBOX": "/outbox"}})
			client(t, e.rev.URL)
		})
	}
	run("in JavaScript", func(t *testing.T, api string) {
		if out, err := exec.CommandContext(t.Context(), "node", "outbox_client.mjs", api).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	run("in Go", useAllResources)
}

// useAllResources is the client in Go: it reconfigures, hands an event over, sees it fail, finds it among the dead,
// replays it, replays what was delivered, and looks at the statistics.
func useAllResources(t *testing.T, api string) {
	var healthy atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !healthy.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(target.Close)
	type event struct {
		ID             string `json:"id"`
		Status         string `json:"status"`
		Attempts       int    `json:"attempts"`
		LastError      string `json:"last_error"`
		IdempotencyKey string `json:"idempotency_key"`
	}
	call := func(method, path string, body, answer any) {
		t.Helper()
		sent, _ := json.Marshal(body)
		if body == nil {
			sent = nil
		}
		req, err := http.NewRequestWithContext(t.Context(), method, api+"/webhooks"+path, bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode >= 300 || json.Unmarshal(text, answer) != nil {
			t.Fatalf("%s %s: %d %s, %v", method, path, res.StatusCode, text, err)
		}
	}
	becomes := func(id, status string) (e event) {
		t.Helper()
		harness.Eventually(t, soon, id+" is "+status, func() error {
			if call(http.MethodGet, "/events/"+id, nil, &e); e.Status != status {
				return fmt.Errorf("it is %+v", e)
			}
			return nil
		})
		return e
	}
	has := func(path, id string) {
		t.Helper()
		var list struct{ Events []event }
		if call(http.MethodGet, path, nil, &list); len(list.Events) != 1 || list.Events[0].ID != id {
			t.Errorf("%s: %+v, want %s", path, list, id)
		}
	}

	var config struct{ MaxAttempts int }
	call(http.MethodPatch, "/config", map[string]int{"maxAttempts": 2, "initialBackoffMs": 100}, &config)
	var handed, again, replay, twice, byKey event
	asked := map[string]any{
		"target_url": target.URL, "event_type": "push", "provider": "github", "payload": 1, "idempotencyKey": "idk_1",
	}
	call(http.MethodPost, "/deliver", asked, &handed)
	if call(http.MethodPost, "/deliver", asked, &again); again.ID != handed.ID {
		t.Errorf("the same key again is %+v", again)
	}
	if dead := becomes(handed.ID, "dead_letter"); dead.Attempts != config.MaxAttempts || dead.LastError == "" {
		t.Errorf("dead, it is %+v", dead)
	}
	has("/dlq", handed.ID)
	has("/events?status=dead_letter", handed.ID)
	healthy.Store(true)
	call(http.MethodPost, "/events/"+handed.ID+"/replay", nil, &replay)
	if becomes(replay.ID, "delivered"); replay.IdempotencyKey == handed.IdempotencyKey {
		t.Errorf("the replay is %+v", replay)
	}
	call(http.MethodPost, "/events/"+replay.ID+"/replay", nil, &twice)
	if becomes(twice.ID, "delivered"); twice.ID == replay.ID {
		t.Errorf("what is delivered is replayed as %+v", twice)
	}
	if call(http.MethodGet, "/idempotency/idk_1", nil, &byKey); byKey.ID != handed.ID || byKey.Status != "dead_letter" {
		t.Errorf("by its key it is %+v", byKey)
	}
	var stats struct{ Total map[string]float64 }
	if call(http.MethodGet, "/stats", nil, &stats); stats.Total["delivered"] != 2 || stats.Total["dead_letter"] != 1 {
		t.Errorf("the statistics are %+v", stats)
	}
}
