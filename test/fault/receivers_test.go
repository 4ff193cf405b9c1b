package fault

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// pushTimeout is how long a receiver may take; a push subscription cannot allow less.
const pushTimeout = 5 * time.Second

// pushRetry goes on for longer than anything is broken: no event may be put aside.
const pushRetry = `{"max_attempts":100,"initial":"1s","factor":1}`

// How often a receiver, whatever the scenario, answers 503, takes the events and breaks the connection instead of an
// answer, lets its sender wait until the time is up, and is slow.
const (
	pushRefused = 0.03
	pushCut     = 0.02
	pushSilent  = 0.003
	pushSlow    = 0.03
)

// pushSubscription is a pattern whose events are pushed, so many at a time.
type pushSubscription struct {
	id, pattern string
	batch       int
	ordering    fsm.Ordering
	// rate is how many pushes a minute it gets at most; 0 for any.
	rate int
	// refused is how often its receiver answers 503 beside pushRefused.
	refused float64
	// picky has its receiver refuse some events for good.
	picky bool
	// host is the scheme and host of its webhook, from where the proxy leads to its receiver. Without a scheme it is
	// the receiver's own machine, under a name that is kept from the proxy. If it is empty, no proxy is asked anyway.
	host string
}

var pushSubscriptions = []pushSubscription{
	{id: "feed", pattern: "/jobs/*", batch: 1, ordering: fsm.OrderingStream},
	{id: "bulk", pattern: "/chat/**", batch: 20, ordering: fsm.OrderingStream, host: "http://10.1.1.1"},
	{id: "rated", pattern: "/files/*", batch: 20, ordering: fsm.OrderingStream, rate: 120},
	{id: "loose", pattern: "/jobs/*", batch: 1, ordering: fsm.OrderingNone, refused: 0.2},
	{id: "heap", pattern: "/files/*", batch: 5, ordering: fsm.OrderingNone, refused: 0.2, host: "https://10.1.1.3"},
	{
		id: "picky", pattern: "/jobs/*", batch: 1, ordering: fsm.OrderingStream, refused: 0.2, picky: true,
		host: "http://10.1.1.2",
	},
	{
		id: "fussy", pattern: "/chat/*", batch: 5, ordering: fsm.OrderingNone, refused: 0.2, picky: true,
		host: unproxied,
	},
}

// A picky receiver refuses one event in pickyEvery for good. It takes a replay of it; of one in stubbornEvery only the
// second.
const pickyEvery, stubbornEvery = 5, 10

// pushedTo returns the consumers that push the events of a stream, and how each orders them.
func pushedTo(path string) map[string]fsm.Ordering {
	ids := map[string]fsm.Ordering{}
	for _, s := range pushSubscriptions {
		if pattern, err := fsm.ParsePattern(s.pattern); err == nil && pattern.Matches(path) {
			ids[fsm.ConsumerID(s.id, path)] = s.ordering
		}
	}
	return ids
}

// receiver is the endpoint that the events of a subscription are pushed to.
type receiver struct {
	pushSubscription
	w      *world
	secret string

	conduct
	// refusedAgain has the events whose first replay was refused; mu of conduct guards it.
	refusedAgain map[pushedEvent]bool
}

func (w *world) startReceivers() {
	w.t.Helper()
	api := harness.NewClient(w.t, w.replicas[0].URL)
	for _, s := range pushSubscriptions {
		r := &receiver{pushSubscription: s, w: w, refusedAgain: map[pushedEvent]bool{}}
		addr := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(w.t))
		ln, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", addr)
		if err != nil {
			w.t.Fatal(err)
		}
		if strings.HasPrefix(s.host, "https") {
			ln = tls.NewListener(ln, w.proxy.ca.ServerTLS())
		}
		rate := "null"
		if s.rate > 0 {
			rate = strconv.Itoa(s.rate)
		}
		a := api.PutSubscription(s.pattern, s.id, fmt.Sprintf(
			`{"mode":"push","webhook":%q,"batch":%d,"ordering":%q,"timeout":%q,"retry":%s,"rate":%s}`,
			w.webhook(s, addr)+"/", s.batch, s.ordering, pushTimeout, pushRetry, rate))
		if a.Status != http.StatusCreated {
			w.t.Fatalf("PUT %s: %d %s", s.id, a.Status, a.Body)
		}
		var sub harness.Subscription
		a.Decode(w.t, &sub)
		r.secret = sub.Secret
		// There is no stream yet, so nothing has come before the secret is known.
		w.serve(ln, r)
		w.receivers = append(w.receivers, r)
	}
}

// serve serves pushes until the world ends.
func (w *world) serve(ln net.Listener, receiver http.Handler) {
	server := &http.Server{
		Handler: receiver, ReadHeaderTimeout: 10 * time.Second, ConnContext: withUsed,
		ErrorLog: log.New(io.Discard, "", 0), // of connections that are cut
	}
	go func() { _ = server.Serve(ln) }()
	w.t.Cleanup(func() { _ = server.Close() })
}

// webhook returns where a subscription has its events pushed to. Each way leads through a link to its receiver.
func (w *world) webhook(s pushSubscription, addr string) string {
	link := w.connect(linkWebhook, -1, addr)
	switch {
	case s.host == "":
		return link.URL()
	case strings.Contains(s.host, "://"):
		w.proxy.leads(s.host, link.Addr)
		return s.host
	}
	_, port, _ := net.SplitHostPort(link.Addr)
	return "http://" + net.JoinHostPort(s.host, port)
}

// ServeHTTP takes a push, or does not.
func (r *receiver) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	r.w.ends(req)
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // cut on the way
	}
	p := harness.Push{ID: req.Header.Get("Webhook-Id"), Stream: req.Header.Get("Reveille-Stream"), Body: body}
	got := &pushed{Consumer: fsm.ConsumerID(r.id, p.Stream), Path: p.Stream, Delivery: p.ID, At: time.Now()}
	got.Replay = req.Header.Get("Reveille-Replay") == "true"
	var events []string
	if got.IDs, events, err = p.Events(); err != nil {
		got.Forged = err.Error()
	}
	for _, text := range events {
		var e event
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			got.Forged = err.Error()
		}
		got.Events = append(got.Events, e.ID)
	}
	if strings.HasPrefix(string(body), "[") != (r.batch > 1) || len(events) > r.batch {
		got.Forged = fmt.Sprintf("%d events with a batch of %d: %.40s", len(events), r.batch, body)
	}
	seconds, _ := strconv.ParseInt(req.Header.Get("Webhook-Timestamp"), 10, 64)
	got.Sent = time.Unix(seconds, 0)
	if err := harness.VerifyStandard(r.secret, req.Header, body, got.Sent); err != nil {
		got.Forged = err.Error()
	}
	answered := r.w.journal.pushed(got)
	b := r.behaviour()
	status := b.status
	var broken *brokenAnswer
	switch {
	case harness.VerifyStandard(r.secret, req.Header, body, got.At) != nil:
		status = http.StatusServiceUnavailable // by the sender's clock; any other refusal would be final
	case status != 0:
	case r.w.chance(pushSilent):
		r.w.pause(pushTimeout + time.Second)
		panic(http.ErrAbortHandler)
	case r.w.chance(pushBroken + b.broken):
		broken = &brokenAnswers[r.w.random(len(brokenAnswers))]
		status = broken.status
	case r.w.chance(pushCut):
		panic(http.ErrAbortHandler)
	case r.w.chance(pushRefused + r.refused):
		status = http.StatusServiceUnavailable
	case r.w.chance(pushSlow):
		r.w.pause(r.w.between(0, time.Second))
		status = http.StatusNoContent
	default:
		r.w.pause(r.w.between(b.linger/2, b.linger))
		status = http.StatusNoContent
	}
	if status/100 == 2 && r.refuses(got) {
		status, broken = refusedForGood, nil
	}
	if broken == nil {
		answered(status)
		r.w.drawEnd(req, b.broken)
		rw.WriteHeader(status)
		return
	}
	r.w.drew(broken.name)
	if broken.status != 0 {
		answered(broken.status)
	}
	broken.send(r.w, rw)
}

// refuses says whether the receiver refuses a push for good.
func (r *receiver) refuses(p *pushed) (refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range p.Events {
		n, err := strconv.Atoi(id)
		if err != nil || !r.picky || n%pickyEvery != pickyEvery/2 {
			continue
		}
		e := pushedEvent{p.Consumer, id}
		if !p.Replay {
			refused = true
		} else if n%stubbornEvery == pickyEvery/2 && !r.refusedAgain[e] {
			refused, r.refusedAgain[e] = true, true
		}
	}
	return refused
}
