package ojs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
	"reveille/fsm/cache"
	"reveille/fsm/router"
)

// eventServer is EventServer and EventWrites: it takes what is appended, once the stream is there, unless err says why
// not.
type eventServer struct {
	mu    sync.Mutex
	there bool
	err   error
	// hangs has the next append wait until its caller gives up.
	hangs bool
	// took are the events by append, calls what was called, and largest is the size of the largest append.
	took    [][]event
	calls   []string
	largest int
}

func (s *eventServer) Append(ctx context.Context, path, contentType string, body []byte) (fsm.Offset, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, "append "+path+" "+contentType)
	switch {
	case s.hangs:
		s.hangs = false
		<-ctx.Done()
		return "", ctx.Err()
	case s.err != nil:
		return "", s.err
	case !s.there:
		return "", fsm.ErrNoStream
	}
	var events []event
	if err := json.Unmarshal(body, &events); err != nil {
		return "", err
	}
	s.took, s.largest = append(s.took, events), max(s.largest, len(body))
	return "7", nil
}

func (s *eventServer) Create(_ context.Context, path, contentType string) (fsm.Offset, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.there = append(s.calls, "create "+path+" "+contentType), true
	return "0", true, nil
}

func (s *eventServer) BeforeWrite(_ context.Context, path string, create bool) fsm.Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprint("before ", create))
	return fsm.Write{Path: path}
}

func (s *eventServer) Written(w fsm.Write, tail fsm.Offset, created bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprint("written ", w.Path, " ", tail, " ", created))
}

func (s *eventServer) Refused(w fsm.Write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, "refused "+w.Path)
}

func (s *eventServer) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// taken are the events that were taken, without their IDs.
func (s *eventServer) taken() (events []event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range slices.Concat(s.took...) {
		e.ID = ""
		events = append(events, e)
	}
	return events
}

var (
	ofOJS  = fsm.Subscription{ID: "sub_1", Generation: "g", Format: fsm.FormatOJS, Mode: fsm.ModePush}
	ofJSON = fsm.Subscription{ID: "other", Generation: "g", Format: fsm.FormatJSON, Mode: fsm.ModePush}
)

func publisher() (*Publisher, *router.Router, *eventServer, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	s, catalog := &eventServer{there: true}, cache.NewCatalog()
	catalog.Replace([]fsm.Subscription{ofOJS, ofJSON}, 1)
	p := NewPublisher(PublisherConfig{
		Stream: "/ojs/webhooks", Source: "http://localhost:8080", Catalog: catalog, Server: s, Writes: s,
		Logger: zap.New(core),
	})
	return p, router.New(p.Observer()), s, logs
}

func attempt(r fsm.AttemptResult) fsm.Attempt {
	return fsm.Attempt{
		Delivery: fsm.Delivery{Subscription: ofOJS.ID, Generation: ofOJS.Generation, Primary: "/ojs/jobs", Attempt: 2},
		Began:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 145 * time.Millisecond, Result: r, Status: 503,
		Reason: "status 503", DeliveryID: "evt_1",
	}
}

// running runs a Publisher within a bubble, and ends it.
func running(t *testing.T, p *Publisher) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// pass lets time pass in a bubble, and all that is then to be done be done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestWhatIsPublished holds which events there are (11.1), what is in them, and what makes none: above all the delivery
// of an event makes no other one, whichever stream it came by.
func TestWhatIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, router, s, _ := publisher()
		defer running(t, p)()
		want := map[fsm.AttemptResult]string{
			fsm.AttemptDone: "webhook.delivered", fsm.AttemptFailed: "webhook.failed",
			fsm.AttemptRetired: "webhook.failed", fsm.AttemptDead: "webhook.dead",
			fsm.AttemptAccepted: "webhook.delivered",
		}
		for i := range fsm.AttemptResults {
			r := fsm.AttemptResult(i)
			silent := slices.Repeat([]fsm.Attempt{attempt(r)}, 6)
			silent[0].EventType = "webhook.delivered"
			silent[1].Delivery.Subscription = ofJSON.ID
			silent[2].Delivery.Generation = "of before"
			silent[3].Delivery.Subscription = "gone"
			silent[4].Delivery.Primary = p.cfg.Stream // whose events may not even be readable
			silent[5].DeliveryID = ""
			for _, a := range silent {
				router.Attempted(a)
			}
			router.Attempted(attempt(r))
			pass(2 * eventsPause)
			got := s.taken()
			if want[r] == "" {
				if len(got) > 0 {
					t.Errorf("%v: %+v", r, got)
				}
				continue
			}
			took := int64(145)
			whole := event{
				SpecVersion: "1.0", Type: want[r], Source: "http://localhost:8080", Subject: "evt_1",
				Time: "2026-01-02T03:04:05.145Z", Data: eventData{
					Subscription: ofOJS.ID, Delivery: "evt_1", Stream: "/ojs/jobs", Attempt: 2, StatusCode: 503,
					ResponseTimeMS: &took, Error: "status 503",
				},
			}
			if text(got) != text([]event{whole}) {
				t.Errorf("%v: %s, want %s", r, text(got), text([]event{whole}))
			}
			s.took = nil
		}
		at := time.Now().UTC().Format(time.RFC3339Nano)
		for _, sub := range []fsm.Subscription{ofOJS, ofJSON} {
			router.Subscribed(sub, true)
			router.Subscribed(sub, false)
		}
		pass(2 * eventsPause)
		got := s.taken()
		if len(got) != 2 || got[0].Type != "webhook.subscription.created" || got[0].Subject != ofOJS.ID ||
			got[1].Type != "webhook.subscription.deleted" || got[1].Time != at ||
			text(got[1:]) != strings.Replace(text(got[:1]), "created", "deleted", 1) ||
			s.took[0][0].ID == s.took[0][1].ID || len(s.took) != 1 {
			t.Errorf("of subscriptions there are %s", text(got))
		}
	})
}

func text(events []event) string {
	b, _ := json.Marshal(events)
	return string(b)
}

// TestTheStreamOfEventsIsMade holds that it is made when the server does not have it, and that discovery is told of
// each write as of one that passes through the gateway.
func TestTheStreamOfEventsIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, router, s, _ := publisher()
		s.there = false
		defer running(t, p)()
		router.Attempted(attempt(fsm.AttemptDone))
		pass(2 * eventsPause)
		const path = "/ojs/webhooks"
		want := []string{
			"before false", "append " + path + " application/json", "refused " + path,
			"before true", "create " + path + " application/json", "written " + path + " 0 true",
			"before false", "append " + path + " application/json", "written " + path + " 7 false",
		}
		if !slices.Equal(s.calls, want) || len(s.taken()) != 1 {
			t.Errorf("the calls are %q, want %q", s.calls, want)
		}
	})
}

// TestEventsWaitForTheStreamServer holds that what is not taken comes again in its order and under its ID, that no more
// than so many wait, that a batch is bounded, and that there is one line in the log.
func TestEventsWaitForTheStreamServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, router, s, logs := publisher()
		s.fail(errors.New("it is away"))
		defer running(t, p)()
		for i := range MaxEventsWaiting + 5 {
			a := attempt(fsm.AttemptDone)
			a.DeliveryID = fmt.Sprint("evt_", i)
			router.Attempted(a)
		}
		pass(10 * eventsRetry)
		if n := testutil.ToFloat64(p.dropped); n != 5 || len(s.taken()) != 0 {
			t.Errorf("%v are dropped, and %d taken", n, len(s.taken()))
		}
		if n := logs.FilterMessageSnippet("takes none").Len(); n != 1 {
			t.Errorf("there are %d lines", n)
		}
		s.fail(nil)
		pass(2 * eventsRetry)
		got := s.taken()
		for i, e := range got {
			if e.Subject != fmt.Sprint("evt_", i) {
				t.Fatalf("event %d is about %s", i, e.Subject)
			}
		}
		if len(got) != MaxEventsWaiting || len(s.took[0]) != eventsAtATime {
			t.Errorf("%d are taken, %d at first", len(got), len(s.took[0]))
		}
	})
}

// TestAnAppendIsNoLargerThanProxiesTake holds that it has less than 1 MiB, however long the paths of the streams are:
// one that is refused for its size would come again without end, and hold up all others.
func TestAnAppendIsNoLargerThanProxiesTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, router, s, _ := publisher()
		defer running(t, p)()
		a := attempt(fsm.AttemptFailed)
		a.Delivery.Primary = "/" + strings.Repeat("&", fsm.MaxPathLen-1) // in JSON each has six bytes
		a.Reason = strings.Repeat("x", fsm.MaxReason)
		for range 2 * eventsAtATime {
			router.Attempted(a)
		}
		pass(2 * eventsPause)
		if n := len(s.taken()); n != 2*eventsAtATime || s.largest >= 1<<20 {
			t.Errorf("%d are taken, the largest append has %d bytes", n, s.largest)
		}
	})
}

// TestAStopPublishesWhatWaits holds that it does, that it waits for no append that hangs, and that what is not taken
// then is counted and said. What comes later is counted, too.
func TestAStopPublishesWhatWaits(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hangs bool
		err   error
		lost  int
	}{
		{"taken", false, nil, 0},
		{"taken, though one append hangs", true, nil, 0},
		{"not taken", false, errors.New("it is away"), eventsAtATime + 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, router, s, logs := publisher()
			s.err, s.hangs = tc.err, tc.hangs
			end := running(t, p)
			for range eventsAtATime + 1 {
				router.Attempted(attempt(fsm.AttemptDone))
			}
			if tc.hangs {
				pass(2 * eventsPause)
			}
			began := time.Now()
			end()
			if n := len(s.taken()); n != eventsAtATime+1-tc.lost || testutil.ToFloat64(p.dropped) != float64(tc.lost) ||
				time.Since(began) > eventsStopTimeout {
				t.Errorf("%s: %d are taken, %v dropped after %v", tc.name, n, testutil.ToFloat64(p.dropped),
					time.Since(began))
			}
			said := logs.FilterMessageSnippet("dropped at the stop").FilterField(zap.Int("events", tc.lost)).Len()
			if (said == 1) != (tc.lost > 0) {
				t.Errorf("%s: the log is %v", tc.name, logs.All())
			}
			router.Subscribed(ofOJS, false)
			if n := testutil.ToFloat64(p.dropped); n != float64(tc.lost+1) {
				t.Errorf("%s: %v are dropped after the stop, want %d", tc.name, n, tc.lost+1)
			}
		})
	}
}
