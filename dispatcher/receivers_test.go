package dispatcher

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"reveille/fsm"
	"reveille/fsm/router"
)

// attempts starts a Dispatcher and returns the attempts that it has made.
func attempts(t *testing.T, change func(*Config)) (*fixture, <-chan fsm.Attempt) {
	t.Helper()
	made := make(chan fsm.Attempt, 100)
	return start(t, newMemStore(), func(c *Config) {
		c.ReadBatch = reads(oneEvent)
		if change != nil {
			change(c)
		}
	}, func(d *Dispatcher) {
		d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) { made <- a }})
	}), made
}

// TestAnAnswerIsWhatItsStatusSays holds that a 2xx has taken a delivery, whatever payload comes with it and whatever
// headers are missing or say that it may be kept. A receiver that breaks the rules for these loses nothing by it.
func TestAnAnswerIsWhatItsStatusSays(t *testing.T) {
	for _, status := range []int{
		http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent, http.StatusPartialContent,
	} {
		for name, payload := range map[string]struct{ kind, text string }{
			"no payload":               {},
			"details":                  {"application/json", `{"status":"stored"}`},
			"details without a type":   {"", `{"status":"stored"}`},
			"a type without a payload": {"application/json", ""},
			"a payload of another one": {"application/json", "<p>"},
			"a long payload":           {"text/plain", strings.Repeat("x", 2*maxAnswer)},
		} {
			if status == http.StatusNoContent && payload.text != "" { // no client would read it
				continue
			}
			t.Run(fmt.Sprint(status, " with ", name), func(t *testing.T) {
				f, made := attempts(t, nil)
				var requests atomic.Int32
				hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					if r.Method != http.MethodPost {
						t.Errorf("a %s came", r.Method)
					}
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("Cache-Control", "public, max-age=3600")
					w.Header()["Content-Type"] = nil
					if payload.kind != "" {
						w.Header().Set("Content-Type", payload.kind)
					}
					w.WriteHeader(status)
					_, _ = io.WriteString(w, payload.text)
				})
				for mode, sub := range modes(f.store, hook) {
					f.Deliver(f.store.event(sub, "/"+sub.ID+"/1", "0005"))
					want := map[string]fsm.AttemptResult{"wake": fsm.AttemptAccepted, "push": fsm.AttemptDone}[mode]
					if a := <-made; a.Result != want || a.Status != status {
						t.Errorf("a %s is %s with %d, want %s", mode, a.Result, a.Status, want)
					}
				}
				if n := requests.Load(); n != 2 { // the second is not answered from a cache
					t.Errorf("%d requests came for two deliveries", n)
				}
			})
		}
	}
}

// TestAChallengeIsNotAnswered holds that an endpoint which asks for another scheme of authorization gets no second
// request for it, and what it got first is what the subscription says.
func TestAChallengeIsNotAnswered(t *testing.T) {
	for _, challenge := range []string{
		`Basic realm="a"`, `Digest realm="a", nonce="b", algorithm=SHA-256, qop="auth"`, "Negotiate", "NTLM",
		`Bearer realm="a", error="invalid_token"`,
	} {
		for name, by := range map[string]fsm.Authorization{
			"nothing": {}, "a token": {Secret: "Bearer abc"}, "a query": {Query: "access_token", Secret: "abc"},
		} {
			t.Run(name+" and "+challenge, func(t *testing.T) {
				f, made := attempts(t, nil)
				var mu sync.Mutex
				var got []string
				hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					got = append(got, r.Header.Get("Authorization")+r.URL.RawQuery)
					mu.Unlock()
					w.Header().Set("WWW-Authenticate", challenge)
					w.WriteHeader(http.StatusUnauthorized)
				})
				n := 0
				for mode, sub := range modes(f.store, hook) {
					sub.Authorization, sub.Retry = by, []time.Duration{time.Hour}
					f.store.db.PutSubscription(sub)
					f.Deliver(f.store.event(sub, "/"+sub.ID+"/1", "0005"))
					want := map[string]fsm.AttemptResult{"wake": fsm.AttemptFailed, "push": fsm.AttemptDead}[mode]
					if a := <-made; a.Result != want || a.Reason != "status 401" {
						t.Errorf("a %s is %s by %q, want %s", mode, a.Result, a.Reason, want)
					}
					n++
				}
				f.stop()
				want := by.Secret
				if by.Query != "" {
					want = by.Query + "=" + by.Secret
				}
				if len(got) != n || got[0] != want || got[1] != want {
					t.Errorf("the requests came with %q, want %d with %q", got, n, want)
				}
			})
		}
	}
}

// TestTheTokenOfTheQueryIsShownNowhere holds that the URL of a request with its token is in no line of the log, metric,
// span, record of an attempt or consumer, dead letter and result of a test, whatever becomes of the delivery.
func TestTheTokenOfTheQueryIsShownNowhere(t *testing.T) {
	const known = "hunter2-of-the-endpoint"
	raw := func(w http.ResponseWriter, text string) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
	for name, answer := range map[string]http.HandlerFunc{
		"taken":  answersWith(http.StatusOK),
		"failed": answersWith(http.StatusServiceUnavailable, "Retry-After", "1"),
		"gone":   answersWith(http.StatusGone),
		"a redirect to itself": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		},
		"a redirect to a host of it": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://"+known+".example/"+r.URL.RawQuery)
			w.WriteHeader(http.StatusFound)
		},
		"repeated": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, "%s\n%q\n%s", r.URL, r.URL.Query(), r.URL.Query().Get("access_token"))
		},
		"repeated and refused": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", r.URL.String())
			http.Error(w, url.QueryEscape(r.URL.Query().Get("access_token")), http.StatusUnauthorized)
		},
		"repeated as a header": func(w http.ResponseWriter, r *http.Request) {
			raw(w, "HTTP/1.1 200 OK\r\n"+r.URL.String()+"\r\n\r\n")
		},
		"repeated as a status": func(w http.ResponseWriter, r *http.Request) {
			raw(w, "HTTP/1.1 400 "+r.URL.String()+"\r\nContent-Length: 0\r\n\r\n")
		},
		"repeated as no answer": func(w http.ResponseWriter, r *http.Request) { raw(w, r.URL.String()+"\r\n\r\n") },
		"cut off":               func(w http.ResponseWriter, _ *http.Request) { raw(w, "") },
		"no answer":             nil,
		"no connection":         nil,
		"no such address":       nil,
		"no such name":          nil,
	} {
		t.Run(name, func(t *testing.T) {
			r, spans := prometheus.NewRegistry(), tracetest.NewSpanRecorder()
			f, made := attempts(t, func(c *Config) {
				c.Metrics, c.Tracer = r, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
				c.resolver = startDNS(t, nil)
				if name == "no answer" {
					c.RequestTimeout = 50 * time.Millisecond
				}
			})
			hook := map[string]string{
				"no connection": "http://127.0.0.1:1", "no such address": "http://169.254.169.254",
				"no such name": "http://nowhere.test",
			}[name]
			if hook == "" {
				hook = endpoint(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if !strings.Contains(r.URL.RawQuery, "access_token="+known) {
						t.Errorf("it came without the token: %s", r.URL)
					}
					if answer == nil {
						<-r.Context().Done()
						return
					}
					answer(w, r)
				})
			}
			token := known + " &+/é " + known
			if name == "a redirect to a host of it" { // which has no such characters
				token = known
			}
			var shown strings.Builder
			for _, sub := range modes(f.store, hook+"/hook?a=b") {
				sub.Authorization = fsm.Authorization{Query: "access_token", Secret: token}
				if sub.Timeout = time.Minute; name == "no answer" {
					sub.Timeout = 50 * time.Millisecond
				}
				f.store.db.PutSubscription(sub)
				f.Deliver(f.store.event(sub, "/"+sub.ID+"/1", "0005"))
				fmt.Fprintf(&shown, "attempt %+v\n", <-made)
				test, err := f.Test(t.Context(), sub)
				fmt.Fprintf(&shown, "test %+v %s %v\n", test, test.Body, err)
			}
			f.stop()
			for id := range modes(newMemStore(), hook) {
				id = map[string]string{"wake": "woken", "push": "pushed"}[id]
				fmt.Fprintf(&shown, "consumer %+v\n", f.store.consumer(fsm.ConsumerID(id, "/"+id+"/1")))
				letters, err := f.store.DeadLetters(context.Background(), fsm.LetterSpan{
					Partition: f.store.PartitionOf("/" + id + "/1"), Through: fsm.MaxLetterNumber,
				}, 10)
				fmt.Fprintf(&shown, "letters %+v %v\n", letters, err)
			}
			for _, e := range f.logs.All() {
				fmt.Fprintln(&shown, "log", e.Message, e.ContextMap())
			}
			for _, s := range spans.Ended() {
				fmt.Fprintln(&shown, "span", s.Name(), s.Attributes(), s.Status(), s.Events())
			}
			families, err := r.Gather()
			fmt.Fprintln(&shown, families, err)
			if len(spans.Ended()) == 0 || len(families) == 0 || f.logs.Len() == 0 {
				t.Errorf("not all of it is here:\n%s", shown.String())
			}
			for line := range strings.Lines(shown.String()) {
				if strings.Contains(line, known) {
					t.Errorf("the token is shown: %s", line)
				}
			}
		})
	}
}
