package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// answers has the worker answer its first wakes as given, one each, and the later ones with the last of them.
func (s *trial) answers(list ...http.HandlerFunc) {
	var n atomic.Int64
	s.worker.Answer(func(rw http.ResponseWriter, r *http.Request, _ harness.Wake) {
		list[min(int(n.Add(1)), len(list))-1](rw, r)
	})
}

// withStatus is an answer with a status and a header or none.
func withStatus(code int, header ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		if len(header) == 2 {
			rw.Header().Set(header[0], header[1])
		}
		rw.WriteHeader(code)
	}
}

func withText(body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, body) }
}

func TestDecisionsOnAnswers(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: patient})

	t.Run("D10: redirects are not followed and count as failures", func(t *testing.T) {
		s := e.trial(t)
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
		s.untilState(fsm.Live)
		for _, redirect := range redirects {
			s := e.trial(t)
			s.answers(redirect)
			s.begin()
			s.until("failure noted", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() })
		}
		if n := len(elsewhere.Wakes()); n > 0 {
			t.Errorf("%d wakes followed a redirect", n)
		}
	})

	t.Run("D10: Retry-After of a 429 or 503, in seconds or as a date, is waited for at least", func(t *testing.T) {
		const wait = 3 * time.Second
		for _, tc := range []struct {
			code int
			date bool
		}{{429, false}, {503, false}, {429, true}, {503, true}} {
			t.Run(fmt.Sprint(tc.code, " as a date ", tc.date), func(t *testing.T) {
				t.Parallel() // they wait, and need nothing of each other
				s := e.trial(t)
				// An HTTP date has whole seconds.
				header, until := "3", time.Now().Add(2*wait).Truncate(time.Second)
				if tc.date {
					header = until.UTC().Format(http.TimeFormat)
				}
				s.answers(withStatus(tc.code, "Retry-After", header), withStatus(http.StatusOK))
				s.begin()
				first, second := s.worker.Wake(1), s.worker.Wake(2)
				s.sameCycle(first, second)
				if !tc.date {
					until = first.At.Add(wait)
				}
				// The clocks of the store and of the test are one; a date is reckoned to the millisecond.
				if early := until.Sub(second.At); early > 2*time.Millisecond {
					t.Errorf("the retry came %s before the time asked for", early)
				}
			})
		}
	})

	t.Run("D10: Retry-After is waited for at most 1 h, and other statuses have none", func(t *testing.T) {
		s := e.trial(t)
		s.answers(withStatus(http.StatusServiceUnavailable, "Retry-After", "86400"))
		s.begin()
		c := s.until("failure noted", func(c fsm.Consumer) bool { return !c.FirstFailure.IsZero() })
		if wait := c.Deadline.Sub(c.FirstFailure); wait != time.Hour {
			t.Errorf("the next attempt is due after %s, want 1h", wait)
		}
		s = e.trial(t)
		s.answers(withStatus(http.StatusInternalServerError, "Retry-After", "86400"), withStatus(http.StatusOK))
		s.begin()
		s.sameCycle(s.worker.Wake(1), s.worker.Wake(2))
	})

	t.Run("D10: 410 retires the deliveries until the subscription is resumed", func(t *testing.T) {
		s := e.trial(t)
		s.answers(withStatus(http.StatusGone), withStatus(http.StatusOK))
		tail := s.begin()
		first := s.worker.Wake(1)
		s.until("retired", func(c fsm.Consumer) bool { return c.Retired })
		s.gateway.Append(s.path, `"more"`)
		s.ok(first, harness.Callback{Epoch: first.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}})
		s.noWake(2, 1500*time.Millisecond) // the schedule's first retry would be at most 1.2 s away
		if res := s.admin.Do(http.MethodPost, "/api/v1/subscriptions/"+s.sub.ID+"/resume", ""); res.Status != http.StatusOK {
			t.Fatalf("resume: status %d: %s", res.Status, res.Body)
		}
		again := s.worker.Wake(2)
		s.sameCycle(first, again)
		s.woken(again, 1, tail)
		s.untilState(fsm.Live)
		if res := s.admin.Do(http.MethodPost, "/api/v1/subscriptions/no-such/resume", ""); res.Status != http.StatusNotFound {
			t.Errorf("resume of an unknown subscription: status %d: %s", res.Status, res.Body)
		}
	})

	t.Run("D10: an answer that is not JSON, or not quite a done, is a plain 2xx", func(t *testing.T) {
		for _, body := range []string{
			"", "OK, thanks", `{"done":true`, `{"done":true} and more`, `{"done":"true"}`, `{"done":1}`, `{"done":false}`, `{"Done":true}`, `[true]`, "null",
		} {
			s := e.trial(t)
			s.answers(withText(body))
			tail := s.begin()
			w := s.worker.Wake(1)
			if c := s.untilState(fsm.Live); c.Links[s.path].Acked != fsm.Start {
				t.Errorf("an answer of %q acked %q", body, c.Links[s.path].Acked)
			}
			s.ok(w, w.Claim(true, s.ack(tail)))
		}
	})

	t.Run("D10: at most 64 KiB of an answer is read", func(t *testing.T) {
		const limit = 64 << 10
		padded := func(size int) string {
			const head, foot = `{"pad":"`, `","done":true}`
			return head + strings.Repeat("x", size-len(head)-len(foot)) + foot
		}
		s := e.trial(t)
		s.answers(withText(padded(limit)))
		s.begin()
		s.worker.Wake(1)
		s.untilState(fsm.Idle)

		s = e.trial(t)
		s.answers(withText(padded(limit + 1)))
		s.begin()
		s.worker.Wake(1)
		s.untilState(fsm.Live)

		const endless = 64 << 20
		s = e.trial(t)
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
		s.untilState(fsm.Live)
		select {
		case n := <-sent:
			if n >= endless {
				t.Errorf("an answer of %d bytes was taken", n)
			}
		case <-time.After(soon):
			t.Error("the endless answer was neither taken nor cut")
		}
	})

	t.Run("D13: each attempt has the current offsets, a fresh token and a fresh signature, and the same epoch and wake_id", func(t *testing.T) {
		s := e.trial(t)
		tokens, err := fsm.NewTokens(harness.TokenKey)
		if err != nil {
			t.Fatal(err)
		}
		s.answers(withStatus(http.StatusServiceUnavailable, "Retry-After", "2"), withStatus(http.StatusOK))
		tail := s.begin()
		first := s.worker.Wake(1)
		other := s.folder + "-other/stream"
		otherTail := s.streams.Create(other)
		s.ok(first, harness.Callback{Epoch: first.Epoch, Acks: []harness.StreamOffset{s.ack(tail)}, Subscribe: []string{other}})
		s.untilTail(s.gateway.Append(s.path, `"more"`))
		second := s.worker.Wake(2)
		s.sameCycle(first, second)
		s.woken(second, 1, tail)
		if len(second.Streams) != 2 || second.Offset(other) != otherTail {
			t.Errorf("the second attempt names %v, want the stream that was subscribed to meanwhile at %q", second.Streams, otherTail)
		}
		for _, w := range []harness.Wake{first, second} {
			said, err := tokens.Parse(w.Token)
			if age := w.At.Add(fsm.TokenTTL).Sub(said.Expires); err != nil || age < -time.Second || age > 5*time.Second {
				t.Errorf("the token of %s expires at %s (%v), want an hour after %s", w, said.Expires, err, w.At)
			}
		}
		if first.Token == second.Token || first.Header.Get("Webhook-Signature") == second.Header.Get("Webhook-Signature") {
			t.Error("the second attempt has the token or the signature of the first")
		}
	})

	for _, late := range []struct {
		name   string
		answer http.HandlerFunc
	}{
		{"done", withText(`{"done":true}`)},
		{"2xx", withStatus(http.StatusOK)},
		{"failure", withStatus(http.StatusInternalServerError)},
		{"410", withStatus(http.StatusGone)},
	} {
		t.Run("D13: a "+late.name+" that answers an older wake changes nothing in the current one", func(t *testing.T) {
			s, g := e.trial(t), make(gate)
			answered := make(chan struct{})
			s.worker.Answer(func(rw http.ResponseWriter, r *http.Request, w harness.Wake) {
				if s.cycle(w) == 1 {
					defer close(answered)
					g.wait(r)
					late.answer(rw, r)
					return
				}
				<-r.Context().Done() // the current wake stays WAKING
			})
			tail := s.begin()
			old := s.worker.Wake(1)
			s.ok(old, old.Claim(true, s.ack(tail)))
			s.gateway.Append(s.path, `"more"`)
			s.woken(s.worker.Wake(2), 2, tail)
			before := s.untilState(fsm.Waking)
			close(g)
			<-answered
			harness.Never(t, quiet, "the current wake changed", func() error {
				c, err := s.consumer()
				same := c.State == before.State && c.Epoch == before.Epoch && c.Attempt == before.Attempt && c.Sent == before.Sent &&
					c.Retired == before.Retired && c.Deadline.Equal(before.Deadline) && c.FirstFailure.Equal(before.FirstFailure) &&
					c.Links[s.path] == before.Links[s.path]
				if err != nil || same {
					return fmt.Errorf("it is as it was (%w)", err)
				}
				return nil
			})
		})
	}
}

func TestDecisionsOnLoopsWithoutProgress(t *testing.T) {
	t.Parallel()
	e := start(t, options{settings: patient})
	t.Run("D14: done without progress wakes at once three times, then by the retry schedule, until an offset moves", func(t *testing.T) {
		s := e.trial(t)
		s.streams.Create(s.path)
		half := s.streams.Append(s.path, `"first"`)
		s.streams.Append(s.path, `"second"`)
		// The seventh wake acks the first event; by then the schedule would wait 3.2 s or more.
		const moves = 7
		s.worker.Answer(func(_ http.ResponseWriter, _ *http.Request, w harness.Wake) {
			cb := w.Claim(true)
			if s.cycle(w) == moves {
				cb.Acks = []harness.StreamOffset{s.ack(half)}
			}
			if s.cycle(w) <= moves+2 {
				s.gateway.Callback(w, cb)
			}
		})
		s.name(s.path)
		first := s.worker.Wake(1)
		s.worker.Wake(moves + 2)
		wakes := s.worker.Wakes()
		gap := func(n int) time.Duration { return wakes[n].At.Sub(wakes[n-1].At) }
		for n := 1; n < 3; n++ {
			if gap(n) > 5*time.Second {
				t.Errorf("wake %d came %s after the one before, want at once", n+1, gap(n))
			}
		}
		for n, least := 3, 200*time.Millisecond; n < moves; n, least = n+1, 2*least {
			if gap(n) < least || gap(n) > least+time.Second+soon/5 {
				t.Errorf("wake %d came %s after the one before, want %s and up to 1s", n+1, gap(n), least)
			}
		}
		for n := moves; n < moves+2; n++ {
			if gap(n) > 5*time.Second {
				t.Errorf("wake %d came %s after an offset had moved, want at once", n+1, gap(n))
			}
		}
		s.woken(wakes[moves], moves+1, half)
		within := 0
		for i, w := range wakes {
			if s.cycle(w) != int64(i+1) {
				t.Errorf("wake %d is of cycle %d: each is a cycle of its own", i+1, s.cycle(w))
			}
			if w.At.Sub(first.At) < 2*time.Second {
				within++
			}
		}
		if within > 6 {
			t.Errorf("there were %d wakes in 2 s, want 6 at most", within)
		}
	})
}
