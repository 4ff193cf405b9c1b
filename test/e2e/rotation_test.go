package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/test/harness"
)

// knows is a receiver's one secret: it refuses what no signature in the headers that it reads is right of.
func knows(secret string, headers ...string) func(int, harness.Push) int {
	return func(_ int, p harness.Push) int {
		for _, name := range headers {
			if harness.VerifySignature(secret, p.Header.Get(name), p.Body, p.At) == nil {
				return http.StatusNoContent
			}
		}
		return http.StatusUnauthorized // the events are dead: they never come again
	}
}

// knowsStandard is knows of a receiver that verifies as Standard Webhooks says.
func knowsStandard(secret string) func(int, harness.Push) int {
	return func(_ int, p harness.Push) int {
		if harness.VerifyStandard(secret, p.Header, p.Body, p.At) == nil {
			return http.StatusNoContent
		}
		return http.StatusUnauthorized
	}
}

// TestASecretIsRotatedWithoutLosingADelivery has a receiver that knows only the previous secret, then only the new one,
// and deliveries from two replicas.
func TestASecretIsRotatedWithoutLosingADelivery(t *testing.T) {
	t.Parallel()
	const asEver, beside = "Webhook-Signature", "Webhook-Signature-New"
	e := start(t, options{})
	second := harness.StartReveille(t, e.settings(nil))
	replicas := []*harness.Client{e.gateway, harness.NewClient(t, second.URL)}

	// rotate returns the new secret and until when the previous one signs.
	rotate := func(id string, flags ...string) (secret string, until time.Time) {
		t.Helper()
		status, out, stderr := second.Ask("", append([]string{"rotate-secret", id}, flags...)...)
		fields := strings.Fields(out)
		if status != 0 || len(fields) < 6 {
			t.Fatalf("exit status %d, %s, %d words", status, stderr, len(fields))
		}
		until, _ = time.Parse(time.RFC3339, fields[len(fields)-1])
		for n, replica := range replicas { // whoever shows the subscription has read the list
			if _, found := replica.Subscription(id); !found {
				t.Fatalf("replica %d does not show the subscription", n+1)
			}
		}
		return fields[2], until
	}

	t.Run("pushes", func(t *testing.T) {
		p := e.pushes(t, map[string]any{"signature": "hmac"})
		p.receiver.Answer(knows(p.sub.Secret, asEver))
		const streams = 8 // of partitions of both replicas
		paths := make([]string, streams)
		for n := range paths {
			paths[n] = fmt.Sprintf("%s/%d", p.folder, n)
			p.gateway.Create(paths[n])
		}
		sent := 0
		deliver := func() {
			t.Helper()
			for _, path := range paths {
				p.add(path, sent, sent+1)
			}
			sent++
			for _, path := range paths {
				p.receiver.Await(path, sent)
			}
		}
		deliver()

		next, _ := rotate(p.sub.ID, "--overlap", "48h")
		deliver()
		p.receiver.Answer(knows(next, asEver, beside))
		deliver()

		// Only two sign, and the one before for as long as was asked.
		last, until := rotate(p.sub.ID, "--overlap", "2s")
		if left := time.Until(until); left > 2*time.Second {
			t.Errorf("the previous secret signs for another %v", left)
		}
		harness.Eventually(t, soon, "the overlap is over", harness.True(func() bool {
			return time.Now().After(until.Add(time.Second)) // it is shown in whole seconds
		}, "not yet"))
		p.receiver.Answer(knows(last, asEver))
		deliver()
		for _, push := range p.receiver.Pushes() {
			if push.Status != http.StatusNoContent {
				t.Errorf("a push was answered %d", push.Status)
			}
		}
		for _, push := range p.receiver.Pushes()[(sent-1)*streams:] {
			if h := push.Header.Get(beside); h != "" {
				t.Errorf("after the overlap there is a second signature: %s", h)
			}
		}
		at, _ := rotate(p.sub.ID, "--overlap", "0s")
		p.receiver.Answer(knows(at, asEver))
		deliver()
	})

	t.Run("wakes", func(t *testing.T) {
		s := e.idle(t)
		next, _ := rotate(s.sub.ID)
		s.append()
		wake := s.worker.Wake(1)
		for header, secret := range map[string]string{asEver: s.sub.Secret, beside: next} {
			if err := harness.VerifySignature(secret, wake.Header.Get(header), wake.Body, time.Now()); err != nil {
				t.Errorf("%s: %v", header, err)
			}
		}
	})

	t.Run("a secret that nobody got to see is replaced, and receivers go on", func(t *testing.T) {
		p := e.pushes(t, nil)
		p.receiver.Answer(knowsStandard(p.sub.Secret))
		rotate(p.sub.ID)
		next, _ := rotate(p.sub.ID, "--keep-previous")
		p.want(p.path, p.add(p.path, 0, 2))
		p.receiver.Answer(knowsStandard(next))
		p.add(p.path, 2, 3)
		p.receiver.Await(p.path, 3)
	})
}
