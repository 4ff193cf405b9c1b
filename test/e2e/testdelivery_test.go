package e2e

import (
	"net/http"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestATestDelivery has an operator try endpoints of both modes, which changes nothing for them.
func TestATestDelivery(t *testing.T) {
	t.Parallel()
	e := shared(t)
	test := func(id string) (status int, out string) {
		t.Helper()
		status, out, stderr := e.rev.Ask("", "test", id)
		if stderr != "" {
			t.Errorf("reveille test: %s", stderr)
		}
		return status, strings.Join(strings.Fields(out), " ")
	}

	t.Run("a push subscription's", func(t *testing.T) {
		p := e.pushes(t, map[string]any{"headers": map[string]string{"X-Team": "blue"}})
		p.receiver.Answer(knowsStandard(p.sub.Secret))
		if status, out := test(p.sub.ID); status != 0 ||
			!strings.HasPrefix(out, "test delivery the endpoint took it status 204 time ") {
			t.Errorf("exit status %d, %s", status, out)
		}
		// As many failures as make an endpoint count as down, and an answer that would stop its deliveries.
		for n := range fsm.DownAfter + 1 {
			answer := []int{http.StatusServiceUnavailable, http.StatusGone}[n/fsm.DownAfter]
			p.receiver.Answer(func(int, harness.Push) int { return answer })
			if status, out := test(p.sub.ID); status != 1 || !strings.HasPrefix(out, "test delivery failed: status ") {
				t.Errorf("exit status %d, %s", status, out)
			}
		}
		tests := p.receiver.Pushes()
		for _, push := range tests {
			if !strings.Contains(string(push.Body), `"type":"webhook.test"`) || push.Stream != "" ||
				push.Header.Get("X-Team") != "blue" {
				t.Errorf("it came as %s with %v", push.Body, push.Header)
			}
		}
		p.receiver.Answer(knowsStandard(p.sub.Secret))
		p.want(p.path, p.add(p.path, 0, 3))
		if n := len(p.receiver.Pushes()) - len(tests); n != 3 {
			t.Errorf("3 events came by %d requests", n)
		}
	})

	t.Run("a wake subscription's", func(t *testing.T) {
		s := e.idle(t)
		g := harness.NewReceiver(t)
		s.patch(s.gateway, jsonOf(t, map[string]string{"webhook": g.URL}))
		g.Answer(knows(s.sub.Secret, "Webhook-Signature"))
		before := s.consumer()
		if status, out := test(s.sub.ID); status != 0 {
			t.Errorf("exit status %d, %s", status, out)
		}
		g.Answer(knows("whsec_of_another", "Webhook-Signature"))
		if status, out := test(s.sub.ID); status != 1 || !strings.Contains(out, "failed: status 401 status 401") {
			t.Errorf("exit status %d, %s", status, out)
		}
		if after := s.consumer(); after.Epoch != before.Epoch || after.State != fsm.Idle || after.LastError != "" {
			t.Errorf("the consumer was %+v and is %+v", before, after)
		}
	})

	t.Run("that of no subscription, and of an endpoint that is not there", func(t *testing.T) {
		if status, _, stderr := e.rev.Ask("", "test", "nobody"); status != 1 ||
			!strings.Contains(stderr, "SUBSCRIPTION_NOT_FOUND") {
			t.Errorf("exit status %d, %s", status, stderr)
		}
		s := e.idle(t)
		s.patch(s.gateway, `{"webhook":"http://127.0.0.1:9/hook"}`)
		if status, out := test(s.sub.ID); status != 1 || !strings.Contains(out, "failed: connection refused") {
			t.Errorf("exit status %d, %s", status, out)
		}
	})
}
