package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/token"
	"reveille/test/harness"
)

func TestDecisionsOnAnswers(t *testing.T) {
	t.Parallel()
	e := shared(t)

	t.Run("D10: redirects are not followed and count as failures", func(t *testing.T) {
		s := e.subscribed(t)
		elsewhere := harness.NewWorker(t)
		var redirects []http.HandlerFunc
		for _, code := range []int{301, 302, 303, 307, 308} {
			redirects = append(redirects, withStatus(code, "Location", elsewhere.URL))
		}
		s.answers(redirects[0], redirects[3], withStatus(http.StatusOK))
		s.begin()
		first := s.worker.Wake(1)
		s.sameCycle(first, s.worker.Wake(2))
		s.sameCycle(first, s.worker.Wake(3))
		s.awaitState(fsm.Live)
		for _, redirect := range redirects {
			s := e.subscribed(t)
			s.answers(redirect)
			s.begin()
			s.await("failure noted", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() })
		}
		if n := len(elsewhere.Wakes()); n > 0 {
			t.Errorf("%d wakes followed a redirect", n)
		}
	})

	t.Run("D10: Retry-After is waited for at least", func(t *testing.T) {
		// The tests of package dispatcher hold it for each status, and for dates.
		s := e.subscribed(t)
		s.answers(withStatus(http.StatusTooManyRequests, "Retry-After", "2"), withStatus(http.StatusOK))
		s.begin()
		first := s.worker.Wake(1)
		// The schedule's first retry is at most 1.2 s away.
		c := s.awaitFailure()
		if wait := c.Deadline.Sub(c.FirstFailure); c.Attempt == 1 && !c.Sent && wait != 2*time.Second {
			t.Errorf("the next attempt is due after %s, want 2s", wait)
		}
		second := s.worker.Wake(2)
		s.sameCycle(first, second)
		if second.At.Sub(first.At) < 2*time.Second {
			t.Errorf("the retry came %s after the first attempt", second.At.Sub(first.At))
		}
	})

	t.Run("D10: Retry-After is waited for at most 1 h, and other statuses have none", func(t *testing.T) {
		s := e.subscribed(t)
		s.answers(withStatus(http.StatusServiceUnavailable, "Retry-After", "86400"), withStatus(http.StatusOK))
		s.begin()
		c := s.await("failure noted", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() })
		if wait := c.Deadline.Sub(c.FirstFailure); wait != time.Hour {
			t.Errorf("the next attempt is due after %s, want 1h", wait)
		}
		// Another worker may get this port, so the pause must not go on.
		s.operator().Do(http.MethodPost, "/api/v1/subscriptions/"+s.sub.ID+"/retry", "")
		s.sameCycle(s.worker.Wake(1), s.worker.Wake(2))
		s = e.subscribed(t)
		s.answers(withStatus(http.StatusInternalServerError, "Retry-After", "86400"), withStatus(http.StatusOK))
		s.begin()
		s.sameCycle(s.worker.Wake(1), s.worker.Wake(2))
	})

	t.Run("D10: 410 retires the deliveries until the subscription is resumed", func(t *testing.T) {
		s := e.subscribed(t)
		s.answers(withStatus(http.StatusGone), withStatus(http.StatusOK))
		tail := s.begin()
		first := s.worker.Wake(1)
		s.await("retired", func(c fsm.Consumer) bool { return c.Retired })
		s.gateway.Append(s.path, `"more"`)
		s.callback(first, harness.Callback{Epoch: first.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}})
		if c := s.consumer(); !c.Retired || !c.Deadline.IsZero() || len(s.worker.Wakes()) > 1 {
			t.Errorf("after %d wakes another is due: %+v", len(s.worker.Wakes()), c)
		}
		res := s.operator().Do(http.MethodPost, "/api/v1/subscriptions/"+s.sub.ID+"/resume", "")
		if res.Status != http.StatusOK {
			t.Fatalf("resume: status %d: %s", res.Status, res.Body)
		}
		again := s.worker.Wake(2)
		s.sameCycle(first, again)
		s.woken(again, 1, tail)
		s.awaitState(fsm.Live)
		res = s.operator().Do(http.MethodPost, "/api/v1/subscriptions/no-such/resume", "")
		if res.Status != http.StatusNotFound {
			t.Errorf("resume of an unknown subscription: status %d: %s", res.Status, res.Body)
		}
	})

	t.Run("D10: an answer that is not JSON, or not quite a done, is a plain 2xx", func(t *testing.T) {
		for _, body := range []string{
			"", "OK, thanks", `{"done":true`, `{"done":true} and more`, `{"done":"true"}`, `{"done":1}`,
			`{"done":false}`, `{"Done":true}`, `[true]`, "null",
		} {
			s := e.subscribed(t)
			s.answers(withText(body))
			tail := s.begin()
			w := s.worker.Wake(1)
			if c := s.awaitState(fsm.Live); c.Links[s.path].Acked != fsm.Start {
				t.Errorf("an answer of %q acked %q", body, c.Links[s.path].Acked)
			}
			s.callback(w, w.Claim(true, s.ack(tail)))
		}
	})

	t.Run("D10: at most 64 KiB of an answer is read", func(t *testing.T) {
		const limit = 64 << 10
		padded := func(size int) string {
			const head, foot = `{"pad":"`, `","done":true}`
			return head + strings.Repeat("x", size-len(head)-len(foot)) + foot
		}
		s := e.subscribed(t)
		s.answers(withText(padded(limit)))
		s.begin()
		s.worker.Wake(1)
		s.awaitState(fsm.Idle)

		s = e.subscribed(t)
		s.answers(withText(padded(limit + 1)))
		s.begin()
		s.worker.Wake(1)
		s.awaitState(fsm.Live)

		const endless = 64 << 20
		s = e.subscribed(t)
		sent := make(chan int, 1)
		s.answers(func(rw http.ResponseWriter, _ *http.Request) {
			n := 0
			for chunk := []byte(strings.Repeat(" ", 32<<10)); n < endless; n += len(chunk) {
				if _, err := rw.Write(chunk); err != nil {
					break
				}
			}
			sent <- n
		})
		s.begin()
		s.awaitState(fsm.Live)
		select {
		case n := <-sent:
			if n >= endless {
				t.Errorf("an answer of %d bytes was taken", n)
			}
		case <-time.After(soon):
			t.Error("the endless answer was neither taken nor cut")
		}
	})

	t.Run("D13: each attempt has the current offsets, a fresh token and a fresh signature, "+
		"and the same epoch and wake_id", func(t *testing.T) {
		s := e.subscribed(t)
		tokens, err := token.New(harness.TokenKey)
		if err != nil {
			t.Fatal(err)
		}
		g := make(gate)
		s.answers(func(rw http.ResponseWriter, r *http.Request) {
			g.wait(r)
			// Tokens and signatures hold the time in whole seconds.
			withStatus(http.StatusServiceUnavailable, "Retry-After", "1")(rw, r)
		}, withStatus(http.StatusOK))
		began := time.Now()
		tail := s.begin()
		first := s.worker.Wake(1)
		other := s.folder + "-other/stream"
		otherTail := s.streams.Create(other)
		s.callback(first,
			harness.Callback{Epoch: first.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}, Subscribe: []string{other}})
		s.awaitTail(s.path, s.gateway.Append(s.path, `"more"`))
		close(g)
		second := s.worker.Wake(2)
		s.sameCycle(first, second)
		s.woken(second, 1, tail)
		if len(second.Streams) != 2 || second.Offset(other) != otherTail {
			t.Errorf("the second attempt names %v, want the stream that was subscribed to meanwhile at %q",
				second.Streams, otherTail)
		}
		// A token is made when its attempt is: the first after the event, the second after the first was answered. What
		// it says is whole seconds.
		for w, since := range map[*harness.Wake]time.Time{&first: began, &second: first.At} {
			said, err := tokens.Parse(w.Token)
			made := said.Expires.Add(-token.TTL)
			if err != nil || made.Before(since.Add(-time.Second)) || made.After(w.At.Add(time.Second)) {
				t.Errorf("the token of %s was made at %s (%v), want one between %s and %s", w, made, err, since, w.At)
			}
		}
		if first.Token == second.Token ||
			first.Header.Get("Webhook-Signature") == second.Header.Get("Webhook-Signature") {
			t.Error("the second attempt has the token or the signature of the first")
		}
	})
}
