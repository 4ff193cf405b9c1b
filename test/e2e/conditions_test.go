package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestTheConditionSaysWhatHappenedLast has endpoints fail in the ways in which endpoints do, each with one stream: the
// list of subscriptions and the metric say what is wrong, since when and why. Once the endpoint takes a delivery, both
// say that it is well.
func TestTheConditionSaysWhatHappenedLast(t *testing.T) {
	t.Parallel()
	e := beside(t, options{})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	selfSigned := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(selfSigned.Close)
	const redirect = "status 302 (redirects are not followed)"
	for name, c := range map[string]struct {
		mode, webhook     string
		status            int
		condition, reason string
	}{
		"302":          {status: 302, condition: "refusing", reason: redirect},
		"401":          {status: 401, condition: "refusing", reason: "status 401"},
		"404":          {status: 404, condition: "refusing", reason: "status 404"},
		"410":          {status: 410, condition: "retired", reason: "status 410"},
		"500":          {status: 500, condition: "failing", reason: "status 500"},
		"503":          {status: 503, condition: "failing", reason: "status 503"},
		"refused":      {webhook: "http://" + closed.Addr().String(), condition: "failing"},
		"TLS":          {webhook: selfSigned.URL, condition: "failing"},
		"302 to wakes": {mode: "wake", status: 302, condition: "failing", reason: redirect},
		"500 to wakes": {mode: "wake", status: 500, condition: "failing", reason: "status 500"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := e.empty(t)
			var works atomic.Bool
			endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if works.Load() {
					_, _ = io.WriteString(w, `{"done":true}`)
					return
				}
				w.WriteHeader(c.status)
			}))
			t.Cleanup(endpoint.Close)
			webhook := endpoint.URL
			if c.webhook != "" {
				webhook = c.webhook
			}
			mode := "push"
			if c.mode != "" {
				mode = c.mode
			}
			f.gateway.Create(f.path)
			body := map[string]any{"mode": mode, "webhook": webhook}
			if mode == "push" {
				body["retry"] = map[string]any{"schedule": []string{"1s", "1s", "1s", "1s", "10h"}}
			}
			a := f.gateway.PutSubscription(f.folder+"/*", f.sub.ID, jsonOf(t, body))
			if a.Status != http.StatusCreated {
				t.Fatalf("PUT: %d %s", a.Status, a.Body)
			}
			f.gateway.Append(f.path, `{"n":1}`)
			f.shows(c.condition, c.reason)
			f.troubled(c.condition)
			if c.webhook != "" {
				f.patch(f.gateway, jsonOf(t, map[string]string{"webhook": endpoint.URL}))
			}
			works.Store(true)
			if c.condition == "retired" {
				f.operator().Do(http.MethodPost, "/api/v1/subscriptions/"+f.sub.ID+"/resume", "")
			}
			f.gateway.Append(f.path, `{"n":2}`)
			f.shows("ok", "")
			f.troubled("")
		})
	}
}

// TestAnOpenRequestWithinItsTimeIsNotShownToFail has a wake worker that takes longer than the waking timeout, and no
// longer than its request may: it gets its wake again and again, and is shown to be well all the while.
func TestAnOpenRequestWithinItsTimeIsNotShownToFail(t *testing.T) {
	t.Parallel()
	e := beside(t, options{settings: map[string]string{
		"REVEILLE_WAKING_TIMEOUT": "250ms", "REVEILLE_WEBHOOK_TIMEOUT": "10m",
	}})
	s, g := e.subscribed(t), make(gate)
	s.answers(func(rw http.ResponseWriter, r *http.Request) {
		g.wait(r)
		answerDone(rw)
	})
	tail := s.begin()
	for n := range 3 {
		s.sameCycle(s.worker.Wake(1), s.worker.Wake(n+1))
		s.await("the attempt is made up for", func(c fsm.Consumer) bool { return c.Attempt > n && !c.Sent })
		s.wellShown(fmt.Sprint("after attempt ", n+1))
	}
	close(g)
	s.awaitIdle(s.path, tail)
	s.wellShown("after the answer")
}

// wellShown checks that nothing shows the subscription, or the consumer of its stream, to be in trouble.
func (s *fixture) wellShown(when string) {
	s.t.Helper()
	for path, list := range map[string]string{
		"subscriptions/" + s.sub.ID:                             "",
		"subscriptions?failing=true":                            "subscriptions",
		"consumers/" + s.id():                                   "",
		"consumers?subscription=" + s.sub.ID:                    "",
		"consumers?subscription=" + s.sub.ID + "&state=failing": "consumers",
	} {
		a := s.operator().Do(http.MethodGet, "/api/v1/"+path, "")
		var got map[string]any
		if err := json.Unmarshal([]byte(a.Body), &got); err != nil || a.Status != http.StatusOK {
			s.t.Fatalf("GET %s: %d %s", path, a.Status, a.Body)
		}
		if list != "" {
			if found, _ := got[list].([]any); len(found) > 0 {
				s.t.Errorf("%s, %s lists %v", when, path, found)
			}
			continue
		}
		for _, sign := range []string{`"failing`, `"last_error"`} {
			if strings.Contains(a.Body, sign) {
				s.t.Errorf("%s, %s shows %s", when, path, a.Body)
			}
		}
	}
	found, _ := s.scrape(s.t)
	for series := range found {
		if strings.HasPrefix(series, "reveille_endpoint_trouble_seconds") && strings.Contains(series, s.sub.ID) {
			s.t.Errorf("%s, the metrics have %s", when, series)
		}
	}
}

// shows waits until the operator's list says of the subscription that it is in a condition, and why.
func (s *fixture) shows(condition, reason string) {
	s.t.Helper()
	harness.Eventually(s.t, harness.Wait, "the subscription is shown to be "+condition, func() error {
		var got struct {
			Condition string
			LastError string    `json:"last_error"`
			Since     time.Time `json:"failing_since"`
		}
		a := s.operator().Do(http.MethodGet, "/api/v1/subscriptions/"+s.sub.ID, "")
		if err := json.Unmarshal([]byte(a.Body), &got); err != nil {
			return err
		}
		if got.Condition != condition || reason != "" && got.LastError != reason ||
			got.Since.IsZero() != (condition == "ok") {
			return fmt.Errorf("it shows %+v", got)
		}
		return nil
	})
}

// troubled waits until the metrics say that the endpoint of the subscription is in a condition; empty if they are to
// say nothing of it.
func (s *fixture) troubled(condition string) {
	s.t.Helper()
	if condition == "retired" { // of the endpoint: it has refused that
		condition = "refusing"
	}
	harness.Eventually(s.t, harness.Wait, "the metrics show it to be "+condition, func() error {
		found, _ := s.scrape(s.t)
		for _, c := range []string{"down", "refusing", "asked_to_wait", "failing"} {
			_, there := found[fmt.Sprintf(
				`reveille_endpoint_trouble_seconds{condition=%q,subscription=%q}`, c, s.sub.ID)]
			if there != (c == condition) {
				return fmt.Errorf("%s: %t", c, there)
			}
		}
		return nil
	})
}
