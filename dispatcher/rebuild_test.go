package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/fsm/router"
)

// stream is what a stream server shows in one read.
type stream struct {
	kind   string
	events []string
	err    error
	// lost is the number of events that are not kept any more.
	lost int64
	// asked, if set, is called at each read.
	asked func()
}

// read is a Config.ReadBatch.
func (s *stream) read(
	ctx context.Context, _, _ string, at, _ fsm.Offset, events int, span int64, matches func([]byte) bool,
) (fsm.Batch, error) {
	if s.asked != nil {
		s.asked()
	}
	from, n := at.Split()
	tail := fsm.Offset("0009")
	b := fsm.Batch{ContentType: s.kind, JSON: s.kind == "application/json", From: at, To: tail, Tail: tail}
	switch {
	case s.err != nil:
		return fsm.Batch{}, cmp.Or(ctx.Err(), s.err)
	case s.lost > 0:
		b.Lost = s.lost
		return b, nil
	case !b.JSON:
		text := strings.Join(s.events, "")[n:]
		if span > 0 {
			text = text[:min(int(span), len(text))]
		}
		b.Events = [][]byte{[]byte(text)}
		return b, nil
	}
	for i, event := range s.events[min(int(n), len(s.events)):] {
		if len(b.Events) == max(events, 1) || span > 0 && int64(i) == span {
			b.To = from.At(n+int64(i), tail)
			break
		}
		if matches == nil || matches([]byte(event)) {
			if matches != nil {
				b.Places = append(b.Places, int64(i))
			}
			b.Events = append(b.Events, []byte(event))
		} else {
			b.Passed++
		}
	}
	b.Within = b.To
	return b, nil
}

// sent is a request that came, and the entry that the log has of its attempt.
type sent struct {
	method string
	header http.Header
	body   string
	entry  fsm.LoggedAttempt
}

// sends delivers a stream, and returns the first request with the entry as the log gives it back.
func sends(t *testing.T, s *stream, change func(*fsm.Subscription)) (*fixture, fsm.Subscription, sent) {
	t.Helper()
	came, over := make(chan sent, 100), make(chan fsm.LoggedAttempt, 100)
	hook := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		came <- sent{method: r.Method, header: r.Header, body: string(body)}
		_, _ = io.WriteString(w, `{"done":true}`)
	})
	f := start(t, newMemStore(), func(c *Config) { c.ReadBatch = s.read }, func(d *Dispatcher) {
		d.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) {
			over <- fsm.LoggedAttemptOf(a, fsm.LogAll)
		}})
	})
	sub := f.store.pushSub(hook+"/the-secret-of-the-path?key=the-key-of-the-query", change)
	f.Deliver(f.store.event(sub, "/s/1", "0009"))
	got := <-came
	got.entry = <-over
	got.entry.ID = "1-1"
	text := got.entry.Extent.Text(got.entry.From, got.entry.Stream)
	if len(text) > 2*fsm.MaxExtent {
		t.Errorf("the log keeps %d bytes", len(text))
	}
	got.entry.Extent = fsm.ReadExtent(text, got.entry.From, got.entry.Stream)
	return f, sub, got
}

func (f *fixture) born() int64 { return f.store.consumer("s:%2Fs%2F1").Born }

var tokenField = regexp.MustCompile(`"token":"[^"]*"`)

// TestTheRequestOfAnAttemptIsBuiltAgain holds for each format that the request comes out as it was sent, apart from
// what is secret: the header to its last field, the body to its last byte, and the time.
func TestTheRequestOfAnAttemptIsBuiltAgain(t *testing.T) {
	t.Parallel()
	numbered := []string{`{"type":"a","n":1}`, `{"type":"b","n":2}`, `{"type":"a","n":3}`, `{"type":"a","n":4}`}
	of := func(format fsm.Format, batch int) func(*fsm.Subscription) {
		return func(s *fsm.Subscription) { s.Format, s.Batch = format, batch }
	}
	wakes := func(s *fsm.Subscription) { s.Mode, s.Format, s.Batch, s.Ordering = fsm.ModeWake, "", 0, "" }
	for name, c := range map[string]struct {
		kind   string
		events []string
		change func(*fsm.Subscription)
		body   string // a part of it
	}{
		"a wake": {change: wakes, body: `"triggered_by":["/s/1"]`},
		"a wake by Standard Webhooks": {
			change: func(s *fsm.Subscription) { wakes(s); s.Signature = fsm.SignatureStandardWebhooks },
			body:   `"token":"[masked]"`,
		},
		"JSON":            {change: of(fsm.FormatJSON, 1), body: numbered[0]},
		"several of JSON": {change: of(fsm.FormatJSON, 3), body: "[" + strings.Join(numbered[:3], ",") + "]"},
		"what a filter has left": {
			change: func(s *fsm.Subscription) { s.Batch, s.Filter.Events = 2, []string{"a"} },
			body:   "[" + numbered[0] + "," + numbered[2] + "]",
		},
		"what a filter has left behind others": {
			change: func(s *fsm.Subscription) { s.Batch, s.Filter.Events = 2, []string{"b"} },
			body:   "[" + numbered[1] + "]",
		},
		"text":                {kind: "text/plain", events: []string{"some", "text"}, body: "sometext"},
		"bytes":               {kind: "image/png", events: []string{"\x89\xff"}, body: "\x89\xff"},
		"CloudEvents":         {change: of(fsm.FormatCloudEvents, 1), body: `"data":{`},
		"binary CloudEvents":  {change: of(fsm.FormatCloudEventsBinary, 1), body: numbered[0]},
		"several CloudEvents": {change: of(fsm.FormatCloudEventsBatch, 3), body: `"data":{`},
		"Open Job Spec, with a time that is the wake's": {change: of(fsm.FormatOJS, 1), body: `"time":`},
		"HMAC": {
			change: func(s *fsm.Subscription) { s.Signature = fsm.SignatureHMAC }, body: numbered[0],
		},
		"two secrets": {
			change: func(s *fsm.Subscription) {
				s.Previous = fsm.PreviousSecret{Secret: "whsec_c29tZXRoaW5n", Until: time.Now().Add(time.Hour)}
			},
			body: numbered[0],
		},
		"headers of the subscription": {
			change: func(s *fsm.Subscription) {
				s.Headers = map[string]string{"x-api-key": "a-secret-of-the-header", "Authorization": "Basic c2VjcmV0"}
			},
			body: numbered[0],
		},
		"a secret in the Authorization header": {
			change: func(s *fsm.Subscription) { s.Authorization.Secret = "Bearer a-secret-that-authorizes" },
			body:   numbered[0],
		},
		"a secret in the query": {
			change: func(s *fsm.Subscription) {
				s.Authorization = fsm.Authorization{Query: "access_token", Secret: "a-secret-in-the-query"}
			},
			body: numbered[0],
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stream{kind: cmp.Or(c.kind, "application/json"), events: c.events}
			if c.events == nil {
				s.events = numbered
			}
			began := time.Now()
			f, sub, was := sends(t, s, c.change)
			r, err := f.Rebuild(t.Context(), sub, f.born(), was.entry)
			if err != nil {
				t.Fatal(err)
			}
			body := tokenField.ReplaceAllString(was.body, `"token":"[masked]"`)
			if string(r.Body) != body || !strings.Contains(body, c.body) || r.Size != len(was.body) || r.Cut {
				t.Errorf("the body is %q of %d bytes, and was %q", r.Body, r.Size, was.body)
			}
			if r.Method != was.method || r.URL != sub.Origin()+"/[masked]" {
				t.Errorf("it is %s %s", r.Method, r.URL)
			}
			if r.At.Before(began.Add(-time.Millisecond)) || r.At.After(was.entry.At.Add(was.entry.Took)) {
				t.Errorf("it was sent at %s, and began at %s", r.At, began)
			}
			if want, got := slices.Sorted(maps.Keys(was.header)), slices.Sorted(maps.Keys(r.Header)); !slices.Equal(
				want, got) {
				t.Errorf("the headers are %q, and were %q", got, want)
			}
			for name, values := range r.Header {
				want := was.header[name]
				switch {
				case strings.Contains(name, "Signature"), name == "Authorization", name == "X-Api-Key":
					want = []string{masked}
				case strings.HasSuffix(name, "Timestamp"):
					is, _ := strconv.Atoi(values[0])
					if before, _ := strconv.Atoi(want[0]); is-before < 0 || is-before > 5 {
						t.Errorf("%s is %s, and was %s", name, values, want)
					}
					continue
				}
				if !slices.Equal(values, want) {
					t.Errorf("%s is %q, and was %q", name, values, want)
				}
			}
			if shown := fmt.Sprintf("%+v %s", r, r.Body); strings.Contains(shown, "secret-") ||
				strings.Contains(shown, "the-key-of") || strings.Contains(shown, "whsec_") {
				t.Errorf("it shows a secret: %s", shown)
			}
		})
	}
}

// TestARequestThatHasSecretsOrIsLongIsShownInPart holds what is taken out of a body, and where it is cut.
func TestARequestThatHasSecretsOrIsLongIsShownInPart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ event, shown string }{
		"a secret of the subscription": {
			`{"at":"the-secret-of-the-path","key":"a\u002dsecret-of-the-header","n":1}`,
			`{"at":"[masked]","key":"[masked]","n":1}`,
		},
		"a short value, as headers may have it": {`{"n":1,"is":"yes"}`, `{"n":1,"is":"yes"}`},
		"as long as is shown":                   {`"` + strings.Repeat("x", fsm.MaxShownBody-2) + `"`, ""},
		"longer": {
			`"` + strings.Repeat("x", 1<<20) + `"`, `"` + strings.Repeat("x", fsm.MaxShownBody-1),
		},
		"cut within a character": {
			`"xx` + strings.Repeat("é", 1<<19) + `"`, `"xx` + strings.Repeat("é", fsm.MaxShownBody/2-2),
		},
		"cut within a secret": {
			`"` + strings.Repeat("x", fsm.MaxShownBody-9) + `the-secret-of-the-path"`,
			`"` + strings.Repeat("x", fsm.MaxShownBody-9) + masked,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stream{kind: "application/json", events: []string{c.event}}
			f, sub, was := sends(t, s, func(s *fsm.Subscription) {
				s.Headers = map[string]string{"X-Key": "a-secret-of-the-header", "X-N": "1", "X-Is": "yes"}
			})
			r, err := f.Rebuild(t.Context(), sub, f.born(), was.entry)
			if want := cmp.Or(c.shown, c.event); err != nil || string(r.Body) != want {
				t.Errorf("shown are %d bytes, %.60q…%.40q, want %.60q; %v", len(r.Body), r.Body,
					r.Body[max(0, len(r.Body)-20):], want, err)
			}
			if r.Size != len(c.event) || r.Cut != (len(c.event) > fsm.MaxShownBody) {
				t.Errorf("it has %d bytes, cut: %t", r.Size, r.Cut)
			}
		})
	}
}

// TestWhyARequestCannotBeBuiltAgainIsSaid holds that each cause has its code and its sentence, and that nothing is
// shown that was not sent.
func TestWhyARequestCannotBeBuiltAgainIsSaid(t *testing.T) {
	t.Parallel()
	type world struct {
		stream *stream
		sub    *fsm.Subscription
		born   *int64
		entry  *fsm.LoggedAttempt
	}
	for name, c := range map[string]struct {
		change func(w world)
		code   fsm.Code
		says   string
	}{
		"an entry of a later version": {
			func(w world) { w.entry.Extent = fsm.ReadExtent("2:xyz", w.entry.From, w.entry.Stream) },
			fsm.CodeSubscriptionChanged, "has got another",
		},
		"nothing was sent": {
			func(w world) { w.entry.Bytes = 0 }, fsm.CodeRequestUnknown, "nothing was sent",
		},
		"a wake of many streams": {
			func(w world) {
				w.sub.Mode, w.sub.Format = fsm.ModeWake, fsm.FormatWake
				w.entry.Extent.Shape = shapeOf(*w.sub, "http://reveille.test")
			},
			fsm.CodeRequestUnknown, "more streams",
		},
		"another format": {
			func(w world) { w.sub.Format = fsm.FormatCloudEvents }, fsm.CodeSubscriptionChanged, "has got another",
		},
		"another filter": {
			func(w world) { w.sub.Filter.Events = []string{"b"} }, fsm.CodeSubscriptionChanged, "filter",
		},
		"another webhook": {
			func(w world) { w.sub.Webhook = "https://other.example/" }, fsm.CodeSubscriptionChanged, "webhook",
		},
		"another batch": {func(w world) { w.sub.Batch = 7 }, fsm.CodeSubscriptionChanged, "batch"},
		"an authorization": {
			func(w world) { w.sub.Authorization.Secret = "Bearer x" }, fsm.CodeSubscriptionChanged, "header",
		},
		"another header": {
			func(w world) { w.sub.Headers = map[string]string{"X-New": "x"} }, fsm.CodeSubscriptionChanged, "header",
		},
		"a stream that was made anew": {
			func(w world) { *w.born++ }, fsm.CodeEventsChanged, "was made anew",
		},
		"a stream that is gone": {
			func(w world) { w.stream.err = fmt.Errorf("GET: %w", fsm.ErrNoStream) },
			fsm.CodeEventsGone, "no such stream",
		},
		"an offset that is not kept": {
			func(w world) { w.stream.err = fmt.Errorf("GET: %w", fsm.ErrNotKept) }, fsm.CodeEventsGone, "does not keep",
		},
		"events that are not kept": {func(w world) { w.stream.lost = 2 }, fsm.CodeEventsGone, "does not keep"},
		"fewer events": {
			func(w world) { w.stream.events = w.stream.events[:1] }, fsm.CodeEventsChanged, "other events",
		},
		"no events": {func(w world) { w.stream.events = nil }, fsm.CodeEventsChanged, "other events"},
		"other events of the same length": {
			func(w world) { w.stream.events[0] = `{"type":"a","n":9}` }, fsm.CodeEventsChanged, "other events",
		},
		"longer events": {
			func(w world) { w.stream.events[0] = `{"type":"a","n":1000}` }, fsm.CodeEventsChanged, "other events",
		},
		"another delivery": {
			func(w world) { w.entry.DeliveryID += "-1" }, fsm.CodeEventsChanged, "other events",
		},
		"a stream server that does not answer": {
			func(w world) { w.stream.err = errors.New("nothing answers") }, fsm.CodeUpstreamUnavailable, "try again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stream{kind: "application/json", events: []string{`{"type":"a","n":1}`, `{"type":"a","n":2}`}}
			f, sub, was := sends(t, s, func(s *fsm.Subscription) { s.Batch = 2 })
			born := f.born()
			c.change(world{s, &sub, &born, &was.entry})
			r, err := f.Rebuild(t.Context(), sub, born, was.entry)
			var not *fsm.NotRebuiltError
			if !errors.As(err, &not) || not.Code != c.code || !strings.Contains(not.Why, c.says) || r.Body != nil {
				t.Errorf("got %q, %v, want %s: %s", r.Body, err, c.code, c.says)
			}
		})
	}
}

// TestWhatDoesNotShowInARequestKeepsIt holds that a pause, another secret and another value of a header do not hide
// what was sent.
func TestWhatDoesNotShowInARequestKeepsIt(t *testing.T) {
	t.Parallel()
	s := &stream{kind: "application/json", events: []string{`{"n":1}`}}
	f, sub, was := sends(t, s, func(s *fsm.Subscription) { s.Headers = map[string]string{"X-Key": "one"} })
	sub.Secret, sub.Headers, sub.Paused, sub.Revision = "whsec_bmV3", map[string]string{"X-Key": "two"}, true, 7
	s.events = append(s.events, `{"n":2}`) // it goes on
	if r, err := f.Rebuild(t.Context(), sub, f.born(), was.entry); err != nil || string(r.Body) != `{"n":1}` {
		t.Errorf("%q, %v", r.Body, err)
	}
}

// TestFewRequestsAreBuiltAgainAtATime holds that one beyond the bound is refused at once, and that a stop ends those
// that wait for the stream server.
func TestFewRequestsAreBuiltAgainAtATime(t *testing.T) {
	t.Parallel()
	s := &stream{kind: "application/json", events: []string{`{"n":1}`}}
	f, sub, was := sends(t, s, nil)
	entered := make(chan struct{}, maxRebuilding)
	s.err = errors.New("cut off")
	s.asked = func() {
		entered <- struct{}{}
		<-f.requests.Done()
	}
	var all sync.WaitGroup
	born := f.born()
	for range maxRebuilding {
		all.Go(func() {
			var not *fsm.NotRebuiltError
			if _, err := f.Rebuild(context.Background(), sub, born, was.entry); !errors.As(err, &not) ||
				not.Code != fsm.CodeUnavailable {
				t.Errorf("after a stop: %v", err)
			}
		})
	}
	for range maxRebuilding {
		<-entered
	}
	busy := func() bool {
		var not *fsm.NotRebuiltError
		_, err := f.Rebuild(t.Context(), sub, born, was.entry)
		return errors.As(err, &not) && not.Code == fsm.CodeTooManyRequests
	}
	if !busy() {
		t.Error("one more is built")
	}
	f.stop()
	all.Wait()
	s.asked, was.entry.Bytes = nil, 0
	if busy() {
		t.Error("the places are not free again")
	}
}
