package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/test/harness"
)

// TestTheDeliveryLog has an endpoint refuse an event and then take it, and an operator find both attempts, with what
// the receiver knows of them, until the subscription is deleted.
func TestTheDeliveryLog(t *testing.T) {
	t.Parallel()
	e := shared(t)
	p := e.pushes(t, map[string]any{"retry": map[string]any{"schedule": []string{"1s"}}})
	p.receiver.Answer(func(n int, _ harness.Push) int {
		if n == 1 {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	})
	began := time.Now().Add(-time.Second)
	p.want(p.path, p.add(p.path, 0, 1))

	type delivery struct {
		At         time.Time
		Stream     string
		DeliveryID string `json:"delivery_id"`
		WakeID     string `json:"wake_id"`
		Attempt    int
		Most       int `json:"max_attempts"`
		Result     string
		StatusCode int `json:"status_code"`
		Class      string
		TookMS     float64 `json:"took_ms"`
		Events     int
		Bytes      int
		WaitedMS   float64 `json:"waited_ms"`
		ExchangeMS float64 `json:"exchange_ms"`
		Remote     string  `json:"remote_address"`
		HTTP       string  `json:"http_version"`
		Response   string  `json:"response_body"`
	}
	deliveries := func(args ...string) (list []delivery) {
		t.Helper()
		status, out, errs := e.rev.Ask("", append([]string{"deliveries", p.sub.ID, "--output", "json"}, args...)...)
		var body struct{ Deliveries []delivery }
		if err := json.Unmarshal([]byte(out), &body); status != 0 || err != nil {
			t.Fatalf("reveille deliveries: status %d, %v, %s", status, err, errs)
		}
		return body.Deliveries
	}
	var list []delivery
	harness.Eventually(t, harness.Wait, "both attempts are in the log", func() error {
		if list = deliveries(); len(list) != 2 {
			return fmt.Errorf("it has %+v", list)
		}
		return nil
	})
	requests := p.receiver.Pushes()
	for i, want := range []delivery{
		{Attempt: 2, Result: "done", StatusCode: http.StatusNoContent},
		{Attempt: 1, Result: "failed", StatusCode: http.StatusInternalServerError, Class: "server_error"},
	} {
		got, request := list[i], requests[len(requests)-1-i]
		if got.At.Before(began) || got.At.After(time.Now()) || got.TookMS <= 0 {
			t.Errorf("attempt %d began at %s and took %g ms", got.Attempt, got.At, got.TookMS)
		}
		if got.WaitedMS < 0 || got.ExchangeMS <= 0 || got.ExchangeMS > got.TookMS || got.HTTP != "1.1" {
			t.Errorf("attempt %d waited %g ms, then took %g ms by HTTP %q",
				got.Attempt, got.WaitedMS, got.ExchangeMS, got.HTTP)
		}
		want.At, want.TookMS, want.WaitedMS, want.ExchangeMS = got.At, got.TookMS, got.WaitedMS, got.ExchangeMS
		want.Remote, want.HTTP = strings.TrimPrefix(p.receiver.URL, "http://"), got.HTTP
		want.Stream, want.DeliveryID, want.Events = p.path, request.ID, 1
		want.Bytes, want.WakeID, want.Most = len(request.Body), got.WakeID, 2
		if got != want {
			t.Errorf("the log has %+v, want %+v", got, want)
		}
	}
	if failed := deliveries("--failed"); !slices.Equal(failed, list[1:]) {
		t.Errorf("--failed shows %+v", failed)
	}
	for _, id := range []string{list[0].DeliveryID, list[0].WakeID} {
		var body struct {
			Found []struct {
				State    string
				Attempts []delivery
			}
		}
		status, out, errs := e.rev.Ask("", "find", id, "--output", "json")
		if err := json.Unmarshal([]byte(out), &body); status != 0 || err != nil || len(body.Found) != 1 ||
			body.Found[0].State != "taken" || !slices.Equal(body.Found[0].Attempts, list) {
			t.Errorf("reveille find %s: status %d, %v, %s %s", id, status, err, out, errs)
		}
	}
	var all struct{ Deliveries []delivery }
	status, out, errs := e.rev.Ask("", "deliveries", "--stream", p.path, "--output", "json")
	if err := json.Unmarshal([]byte(out), &all); status != 0 || err != nil || !slices.Equal(all.Deliveries, list) {
		t.Errorf("of all subscriptions: status %d, %v, %s %s", status, err, out, errs)
	}
	p.gateway.DeleteSubscription(p.folder+"/*", p.sub.ID)
	if status, _, errs := e.rev.Ask("", "deliveries", p.sub.ID); status != 1 {
		t.Errorf("of a deleted subscription: status %d, %s", status, errs)
	}
}

// TestWhatWasSentIsReadAgain has an endpoint refuse two events and then take their replay. An operator sees both
// requests as they came, until the stream is another one.
func TestWhatWasSentIsReadAgain(t *testing.T) {
	t.Parallel()
	e := shared(t)
	p := e.pushes(t, map[string]any{"batch": 2, "headers": map[string]string{"X-Api-Key": "a-key-of-the-endpoint"}})
	p.receiver.Answer(func(n int, _ harness.Push) int {
		if n == 1 {
			return http.StatusUnprocessableEntity
		}
		return http.StatusNoContent
	})
	p.add(p.path, 0, 2)
	harness.Eventually(t, harness.Wait, "the refused delivery is dead", func() error {
		status, out, errs := e.rev.Ask("", "dead-letters", "--subscription", p.sub.ID)
		return harness.True(func() bool { return status == 0 && strings.Contains(out, "dl_") }, "%s %s", out, errs)()
	})
	if status, _, errs := e.rev.Ask("", "dead-letters", "replay", "--subscription", p.sub.ID); status != 0 {
		t.Fatalf("replay: %s", errs)
	}
	var list struct{ Deliveries []struct{ ID string } }
	admin := e.operator()
	of := "/api/v1/subscriptions/" + p.sub.ID + "/deliveries"
	harness.Eventually(t, harness.Wait, "both attempts are in the log", func() error {
		admin.Do(http.MethodGet, of, "").Decode(t, &list)
		return harness.True(func() bool { return len(list.Deliveries) == 2 }, "it has %+v", list)()
	})
	p.gateway.Append(p.path, `{"n":"what came later"}`)
	p.gateway.CloseStream(p.path)
	pushes := p.receiver.Pushes()
	request := of + "/" + pushes[0].ID + "/request"
	for i, d := range list.Deliveries {
		push := pushes[1-i] // the log has the latest first
		var r struct {
			Headers []struct{ Name, Value string }
			Body    string
			SentAt  time.Time `json:"sent_at"`
		}
		a := admin.Do(http.MethodGet, request+"?attempt="+d.ID, "")
		if a.Status != http.StatusOK {
			t.Fatalf("the request of %s: %d %s", d.ID, a.Status, a.Body)
		}
		a.Decode(t, &r)
		if r.Body != string(push.Body) || time.Since(r.SentAt).Abs() > time.Hour {
			t.Errorf("shown is %s of %s, and %s came", r.Body, r.SentAt, push.Body)
		}
		for _, h := range r.Headers {
			want := push.Header.Get(h.Name)
			switch h.Name {
			case "Webhook-Signature", "X-Api-Key":
				want = "[masked]"
			case "Webhook-Timestamp":
				want = h.Value
			case "Content-Length":
				want = fmt.Sprint(len(push.Body))
			}
			if h.Value != want {
				t.Errorf("%s is %q, and %q came", h.Name, h.Value, want)
			}
		}
		if strings.Contains(string(a.Body), "a-key-of-the-endpoint") || strings.Contains(string(a.Body), p.sub.Secret) {
			t.Errorf("a secret is shown: %s", a.Body)
		}
	}
	status, out, errs := e.rev.Ask("", "deliveries", p.sub.ID, "--request", pushes[0].ID)
	if status != 0 || !strings.HasPrefix(out, "POST /[masked] HTTP/1.1\nHost: ") ||
		!strings.HasSuffix(out, "\n\n"+string(pushes[0].Body)+"\n") {
		t.Errorf("reveille deliveries --request: %s %s", out, errs)
	}
	refused := func(what, code string) {
		t.Helper()
		harness.Eventually(t, soon, what, func() error {
			status, _, errs := e.rev.Ask("", "deliveries", p.sub.ID, "--request", pushes[0].ID)
			return harness.True(func() bool { return status == 1 && strings.Contains(errs, code) }, "%s", errs)()
		})
	}
	p.gateway.DeleteStream(p.path)
	refused("the stream is gone", "EVENTS_GONE")
	p.gateway.Create(p.path)
	p.add(p.path, 0, 2)
	refused("the stream was made anew", "EVENTS_CHANGED")
}

// TestWhatAWakeHasSentIsBuiltAgain holds that its token is not shown.
func TestWhatAWakeHasSentIsBuiltAgain(t *testing.T) {
	t.Parallel()
	s := shared(t).idle(t)
	s.worker.AnswerDone()
	s.gateway.Append(s.path, `{"event":"that wakes"}`)
	wake := s.worker.Wake(1)
	want := strings.Replace(string(wake.Body), wake.Token, "[masked]", 1)
	harness.Eventually(t, harness.Wait, "the wake is in the log", func() error {
		path := "/api/v1/subscriptions/" + s.sub.ID + "/deliveries/" + wake.WakeID + "/request"
		a := s.operator().Do(http.MethodGet, path, "")
		if a.Status != http.StatusOK {
			return fmt.Errorf("%d %s", a.Status, a.Body)
		}
		var r struct{ Body string }
		if a.Decode(t, &r); r.Body != want {
			t.Errorf("shown is %s, and %s came", r.Body, want)
		}
		return nil
	})
}
