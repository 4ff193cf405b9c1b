package dispatcher

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/fsm/router"
)

// eventStreams are the streams of an Open Job Spec subscription, in memory. One of them has events that tell of
// deliveries: each attempt that may be told of appends one there. These events are delivered, too.
type eventStreams struct {
	*fixture
	sub fsm.Subscription

	mu     sync.Mutex
	events map[string][]string
	// told counts the events that tell of deliveries, by the stream that was delivered.
	told map[string]int
	// largest is true if every event that does not tell of deliveries is too large to be read. If lost is true, no
	// event of any stream is kept.
	largest, lost bool
}

const (
	toldStream    = "/s/webhooks"
	jobStream     = "/s/jobs"
	foreignStream = "/s/of-another-installation"
)

func (s *eventStreams) append(path, event string) {
	s.mu.Lock()
	s.events[path] = append(s.events[path], event)
	tail := fsm.Offset(fmt.Sprintf("%04d", len(s.events[path])))
	s.mu.Unlock()
	s.Deliver(s.store.event(s.sub, path, tail))
}

func (s *eventStreams) read(
	_ context.Context, _, path string, at, _ fsm.Offset, _ int, _ int64, matches func([]byte) bool,
) (fsm.Batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if at != fsm.Start {
		_, _ = fmt.Sscan(string(at), &n)
	}
	events := s.events[path]
	tail := fsm.Offset(fmt.Sprintf("%04d", len(events)))
	b := fsm.Batch{ContentType: "application/json", JSON: true, From: at, To: tail, Tail: tail}
	if n >= len(events) {
		return b, nil
	}
	b.To = fsm.Offset(fmt.Sprintf("%04d", n+1))
	switch {
	case s.lost:
		b.NotKept = true
	case s.largest && path == jobStream:
		b.TooLarge = true
	default:
		b.Events = [][]byte{[]byte(events[n])}
		b.JSON = matches == nil
	}
	return b, nil
}

func (s *eventStreams) attempted(a fsm.Attempt) {
	tells := a.Delivery.Primary == toldStream || strings.HasPrefix(a.EventType, "webhook.")
	if !told(a.Result) || a.DeliveryID == "" || tells {
		return
	}
	s.mu.Lock()
	s.told[a.Delivery.Primary]++
	n := s.told[a.Delivery.Primary]
	s.mu.Unlock()
	if n < 100 {
		go s.append(toldStream, `{"type":"webhook.failed"}`)
	}
}

// TestWhatTellsOfADeliveryMakesNoDelivery lets attempts end in each way at each stage, by the settings, the stream
// server or the endpoint. Each attempt at a first-hand event has one event that tells of it.
func TestWhatTellsOfADeliveryMakesNoDelivery(t *testing.T) {
	type way struct {
		prepare func(*Dispatcher)
		config  func(*Config)
		change  func(*fsm.Subscription)
		answer  http.HandlerFunc
		streams func(*eventStreams)
		// silent is true if no event tells of it.
		silent bool
	}
	ways := map[string]way{
		"answered 2xx": {answer: answersWith(http.StatusOK)},
		"answered 503": {answer: answersWith(http.StatusServiceUnavailable)},
		"answered 410": {answer: answersWith(http.StatusGone)},
		"answered 400": {answer: answersWith(http.StatusBadRequest)},
		"no answer": {answer: func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			hangs(r)
		}},
		"a target that is refused": {config: func(c *Config) { c.AllowInsecure = false }},
		"no target":                {change: func(s *fsm.Subscription) { s.Webhook = "http://%zz" }},
		"an address that is refused": {prepare: func(d *Dispatcher) {
			d.stages.send = []step{func(_ context.Context, a *attempt) bool {
				return a.ends(judgeError(errProhibited))
			}}
		}},
		"too large": {streams: func(s *eventStreams) { s.largest = true }},
		"not kept":  {streams: func(s *eventStreams) { s.lost = true }},
		"no JSON, and a filter": {change: func(s *fsm.Subscription) {
			s.Filter.Values = map[string][]fsm.Value{"type": {`"job.done"`}}
		}},
	}
	for _, stage := range []struct {
		name string
		of   func(*stages) *[]step
	}{
		{"before anything is read", func(s *stages) *[]step { return &s.prepare }},
		{"before it is allowed", func(s *stages) *[]step { return &s.allow }},
		{"before it is built", func(s *stages) *[]step { return &s.build }},
		{"before it is sent", func(s *stages) *[]step { return &s.send }},
		{"before it is judged", func(s *stages) *[]step { return &s.judge }},
	} {
		for i := range fsm.AttemptResults {
			r := fsm.AttemptResult(i)
			ways[stage.name+" it is "+r.String()] = way{prepare: func(d *Dispatcher) {
				steps := stage.of(&d.stages)
				end := func(_ context.Context, a *attempt) bool {
					if steps == &d.stages.prepare && a.kind.load == nil { // what settle needs of prepare
						d.prepare(t.Context(), a)
					}
					return a.ends(format.Verdict{Result: r, Class: format.ClassOther, Reason: "so it is"})
				}
				*steps = append([]step{end}, *steps...)
			}, silent: stage.name == "before anything is read" || !told(r)}
		}
	}
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newMemStore()
				s := &eventStreams{events: map[string][]string{}, told: map[string]int{}}
				s.sub = store.pushSub(hookURL, func(sub *fsm.Subscription) {
					sub.Format, sub.Ordering = fsm.FormatOJS, fsm.OrderingNone
					sub.Timeout, sub.Retry = 5*time.Second, []time.Duration{time.Second, time.Second}
					if w.change != nil {
						w.change(sub)
					}
				})
				if w.streams != nil {
					w.streams(s)
				}
				if w.answer == nil {
					w.answer = answersWith(http.StatusOK)
				}
				s.fixture = start(t, store, func(c *Config) {
					c.ReadBatch, c.DueInterval = s.read, time.Second
					if w.config != nil {
						w.config(c)
					}
				}, without(t, w.answer), func(d *Dispatcher) {
					if w.prepare != nil {
						w.prepare(d)
					}
					d.cfg.Outcomes.Observe(router.Observer{Attempt: s.attempted})
				})
				stops := strings.HasSuffix(name, "retired") || strings.HasSuffix(name, "410") // also the other stream
				for range 2 {
					s.append(jobStream, `{"type":"job.done"}`)
					// Of what is not read the type is not known.
					if !s.lost && !stops && !strings.HasPrefix(name, "no JSON") {
						s.append(foreignStream, `{"type":"web\u0068ook.dead","id":"1"}`)
					}
				}
				pass(time.Minute)
				s.stop()
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				n := s.told[jobStream]
				if len(s.told) > 1 || w.silent != (n == 0) || len(s.events[toldStream]) != n {
					t.Errorf("the attempts that are told of are %v by stream, want only those of %s", s.told, jobStream)
				}
			})
		})
	}
}

// told says whether a result is an event (OJS Webhook Delivery 11.1).
func told(r fsm.AttemptResult) bool {
	switch r {
	case fsm.AttemptDone, fsm.AttemptAccepted, fsm.AttemptFailed, fsm.AttemptRetired, fsm.AttemptDead:
		return true
	case fsm.AttemptAbandoned, fsm.AttemptEmpty, fsm.AttemptBlocked:
	}
	return false
}

// TestATargetThatIsRefusedCountsForItsEndpoint holds that the settings may become stricter. The deliveries are then not
// even sent, but they do not fail one by one by their schedules. The endpoint is down, and gets one probe at a time.
func TestATargetThatIsRefusedCountsForItsEndpoint(t *testing.T) {
	for name, refuses := range map[string]func(*pushed){
		"by its URL": func(p *pushed) { p.guard.allowInsecure = false },
		"by its address": func(p *pushed) {
			p.stages.send = []step{func(_ context.Context, a *attempt) bool {
				a.sent = true
				return a.ends(judgeError(errProhibited))
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inPushTime(t, lasting, func(p *pushed) {
				refuses(p)
				var results sync.Map
				p.cfg.Outcomes.Observe(router.Observer{Attempt: func(a fsm.Attempt) {
					if a.Class == string(format.ClassProhibited) {
						results.Store(fmt.Sprint(a.Delivery.Primary, a.Began.UnixNano()), true)
					}
				}})
				for i := range 100 {
					p.event(fmt.Sprint("/s/", i))
					synctest.Wait()
				}
				pass(time.Minute)
				attempts := 0
				results.Range(func(any, any) bool { attempts++; return true })
				if probes := 6; attempts < fsm.DownAfter || attempts > fsm.DownAfter+probes ||
					p.logged("the endpoint of a subscription is down") != 1 {
					t.Errorf("%d attempts in a minute, want %d and at most %d probes", attempts, fsm.DownAfter, probes)
				}
			})
		})
	}
}
