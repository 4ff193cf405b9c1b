package attack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"reveille/test/harness"
)

// together calls f for 0 to n-1, several at a time.
func together(n int, f func(i int)) {
	const width = 16
	var wg sync.WaitGroup
	for w := range width {
		wg.Go(func() {
			for i := w; i < n; i += width {
				f(i)
			}
		})
	}
	wg.Wait()
}

// many is the subscription of a number, of which a hundred are to a folder.
func many(of string, i int) string {
	return fmt.Sprintf("/many/%s/%d/*?subscription=many-%s-%d", of, i/100, of, i)
}

// subscribeMany makes n subscriptions with a webhook each.
func (r *rig) subscribeMany(of string, n int, webhook func(i int) string) {
	r.t.Helper()
	together(n, func(i int) { r.must(http.MethodPut, many(of, i), fmt.Sprintf(`{"webhook":%q}`, webhook(i))) })
}

// wakeMany creates the stream of each folder, which wakes the consumer of each subscription.
func (r *rig) wakeMany(of string, n int) {
	r.t.Helper()
	together((n+99)/100, func(i int) { r.must(http.MethodPut, fmt.Sprintf("/many/%s/%d/stream", of, i), "") })
}

// forgetMany deletes what subscribeMany has made, where other attacks follow.
func (r *rig) forgetMany(of string, n int) {
	r.t.Helper()
	if r.shared {
		together(n, func(i int) { r.must(http.MethodDelete, many(of, i), "") })
	}
}

// must makes a request, from any goroutine, that has to succeed.
func (r *rig) must(method, path, body string) {
	r.t.Helper()
	res, err := r.gateway.Try(r.t.Context(), method, path, body, "Content-Type", "application/json")
	if err != nil || res.Status/100 != 2 {
		r.t.Errorf("%s %s: %d %v %s", method, path, res.Status, err, res.Body)
	}
}

// prober is a subscription that a test uses the API port with, for all that it is for.
type prober struct {
	*rig
	worker *harness.Worker
	wakes  int
}

func newProber(r *rig) *prober {
	r.t.Helper()
	p := &prober{rig: r, worker: harness.NewWorker(r.t)}
	r.gateway.Subscribe("/prober", "prober", p.worker)
	p.finish(r.gateway.Create("/prober"))
	return p
}

// use appends through the gateway, calls back for the wake, and makes and deletes a subscription.
func (p *prober) use() {
	p.t.Helper()
	p.finish(p.gateway.Append("/prober", `{}`))
	p.gateway.SubscribeURL("/elsewhere/*", "elsewhere", p.worker.URL)
	p.gateway.DeleteSubscription("/elsewhere/*", "elsewhere")
}

func (p *prober) finish(tail string) {
	p.t.Helper()
	p.wakes++
	w := p.worker.Wake(p.wakes)
	if a := p.gateway.Callback(w,
		w.Claim(true, harness.StreamOffset{Path: "/prober", Offset: tail})); a.Status != http.StatusOK {
		p.t.Errorf("callback: %d %s", a.Status, a.Body)
	}
}

func TestEndpointsThatNeverAnswer(t *testing.T) {
	harness.Long(t)
	silentAttack(size(600, 10_000)).run(t)
}

// fewInFlight are the settings with which few requests are in flight, unless the full numbers are asked for.
func fewInFlight() (inFlight int, settings map[string]string) {
	if full {
		return 1024, map[string]string{}
	}
	return 64, map[string]string{"REVEILLE_MAX_IN_FLIGHT": "64", "REVEILLE_MAX_IN_FLIGHT_PER_SUBSCRIPTION": "8"}
}

func silentAttack(n int) attack {
	inFlight, settings := fewInFlight()
	var bad *attacker
	return attack{
		name:     fmt.Sprintf("%d endpoints that never answer", n),
		settings: settings,
		// A request in flight costs a connection and its buffers, some 20 KiB; a wake that waits less than 2 KiB.
		peak: size(80, 250), files: inFlight + filesKept, lull: 2 * time.Minute, ratio: 2,
		prepare: func(r *rig) {
			bad = startAttacker(r.t, order{Behaviours: []string{"silent"}})
			hole := bad.account().Endpoints[0].URL
			r.subscribeMany("silent", n, func(i int) string { return fmt.Sprintf("%s/%d", hole, i) })
		},
		begin: func(r *rig) func() {
			r.wakeMany("silent", n)
			harness.Eventually(r.t, patience, "they hold what they can get",
				harness.True(func() bool { return bad.account().Endpoints[0].Open >= inFlight*3/4 }, "not yet"))
			return func() { bad.end(); r.forgetMany("silent", n) }
		},
	}
}

func TestAnswersOfUnlimitedSize(t *testing.T) {
	harness.Long(t)
	n := size(100, 1_000)
	endlessAttack(fmt.Sprintf("%d endpoints with answers without end", n), n, endless).run(t)
}

// endlessAttack is of endpoints that take turns in behaviours.
func endlessAttack(name string, n int, behaviours []string) attack {
	of := strings.ReplaceAll(behaviours[0], " ", "-")
	var bad *attacker
	return attack{
		name: name,
		// An answer is read up to 64 KiB, its header too.
		peak: size(80, 200), files: n + filesKept, lull: 2 * time.Minute, ratio: 2,
		prepare: func(r *rig) {
			bad = startAttacker(r.t, order{Behaviours: behaviours})
			endpoints := bad.account().Endpoints
			r.subscribeMany(of, n,
				func(i int) string { return fmt.Sprintf("%s/%d", endpoints[i%len(endpoints)].URL, i) })
		},
		begin: func(r *rig) func() {
			r.wakeMany(of, n)
			harness.Eventually(r.t, patience, "they answer", harness.True(func() bool {
				return !slices.ContainsFunc(bad.account().Endpoints, func(e endpoint) bool { return e.Seen == 0 })
			}, "not yet"))
			return func() { bad.end(); r.forgetMany(of, n) }
		},
	}
}

// liveTime is longer than a test takes.
const liveTime = "2h"

// liveConsumer is a consumer that is at work for as long as a test takes.
func liveConsumer(r *rig) harness.Wake {
	r.t.Helper()
	if r.live != nil {
		return *r.live
	}
	worker := harness.NewWorker(r.t)
	r.gateway.Subscribe("/live", "live", worker)
	r.gateway.Create("/live")
	w := worker.Wake(1)
	if a := r.gateway.Callback(w, w.Claim(false)); a.Status != http.StatusOK {
		r.t.Fatalf("claim: %d %s", a.Status, a.Body)
	}
	r.live = &w
	return w
}

func TestSlowClients(t *testing.T) {
	harness.Long(t)
	slowAttack(size(600, 5_000)).run(t)
}

func TestMoreSlowClientsThanConnections(t *testing.T) {
	harness.Long(t)
	crowdedAttack(size(600, 5_000)).run(t)
}

func crowdedAttack(n int) attack {
	limit := n / 4
	a := slowAttack(n)
	a.name = fmt.Sprintf("%d slow clients for %d connections", n, limit)
	a.settings["REVEILLE_MAX_CONNECTIONS"] = fmt.Sprint(limit)
	a.peak, a.files, a.crowded = size(100, 300), limit*3/2+filesKept, true
	a.after = func(r *rig) {
		// A good client is closed out only if the others bring as many new connections as there may be before its
		// request is there.
		cut := 0
		for range inShort(10, 100) {
			harness.Eventually(r.t, harness.Wait, "a good client is served", func() error {
				res, err := r.gateway.Try(r.t.Context(), http.MethodGet, "/**?subscriptions", "", "Connection", "close")
				if err == nil && res.Status != http.StatusOK {
					err = fmt.Errorf("status %d: %s", res.Status, res.Body)
				}
				if err != nil {
					cut++
				}
				return err
			})
		}
		if full && cut > 10 {
			r.t.Errorf("%d of a hundred requests had to be made again", cut)
		}
	}
	return a
}

func slowAttack(n int) attack {
	var live harness.Wake
	return attack{
		name: fmt.Sprintf("%d slow clients of the API port", n),
		// A connection costs its buffers and goroutines, some 45 KiB; one through the gateway has another upstream.
		peak: size(100, 400), files: n*3/2 + filesKept,
		lull: 2 * time.Minute, ratio: 2, settings: map[string]string{"REVEILLE_LIVENESS_TIMEOUT": liveTime},
		prepare: func(r *rig) { live = liveConsumer(r) },
		begin: func(r *rig) func() {
			host := strings.TrimPrefix(r.rev.URL, "http://")
			callback := strings.TrimPrefix(live.Callback, r.rev.URL)
			authorized := "Authorization: Bearer " + live.Token + "\r\n"
			body := "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
			bad := startAttacker(r.t, order{Host: host, Clients: n, Kinds: []slowClient{
				{"header that stops", "POST " + callback + " HTTP/1.1\r\nHost: x\r\n", ""},
				{"header that trickles", "POST " + callback + " HTTP/1.1\r\nHost: x\r\nX-Slow: ", "x"},
				{
					"callback whose body does not come",
					"POST " + callback + " HTTP/1.1\r\nHost: x\r\n" + authorized + body, "",
				},
				{
					"callback whose body trickles", "POST " + callback + " HTTP/1.1\r\nHost: x\r\n" + authorized + body,
					" ",
				},
				{
					"subscription whose body trickles",
					"PUT /live?subscription=slow HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + body, " ",
				},
				{"append through the gateway whose body trickles", "POST /live HTTP/1.1\r\nHost: x\r\n" + body, " "},
				{
					"answers that are not read",
					strings.Repeat("GET /**?subscriptions HTTP/1.1\r\nHost: x\r\n\r\n", 200), "G",
				},
			}})
			harness.Eventually(r.t, patience, "the slow clients are there",
				harness.True(func() bool { return bad.account().Begun >= int64(n) }, "not yet"))
			return bad.end
		},
	}
}

func TestACallbackThatSubscribesToTooManyStreams(t *testing.T) {
	harness.Long(t)
	callbackAttack().run(t)
}

func callbackAttack() attack {
	const streams = 10_000
	var live harness.Wake
	return attack{
		name: fmt.Sprintf("callbacks that subscribe to %d streams", streams),
		// The body of a callback is 1 MiB at most, and a few are read at a time here.
		peak: 250, files: filesKept, lull: time.Minute, ratio: 2,
		settings: map[string]string{"REVEILLE_LIVENESS_TIMEOUT": liveTime},
		prepare:  func(r *rig) { live = liveConsumer(r) },
		begin: func(r *rig) func() {
			paths := make([]string, streams)
			for n := range paths {
				paths[n] = fmt.Sprintf("/too/many/%d", n)
			}
			many, err := json.Marshal(harness.Callback{Epoch: live.Epoch, Subscribe: paths})
			if err != nil {
				r.t.Fatal(err)
			}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						a := r.gateway.RawCallback(live.Callback, live.Token, string(many))
						if a.Status != http.StatusBadRequest || !strings.Contains(a.Error.Message, "at most 1000") ||
							!strings.Contains(a.Error.Message, "REVEILLE_MAX_STREAMS_PER_CONSUMER") {
							r.t.Errorf("%d %s, want 400 with the limit and its setting", a.Status, a.Body)
						}
						select {
						case <-stop:
							return
						case <-time.After(20 * time.Millisecond):
						}
					}
				})
			}
			return sync.OnceFunc(func() { close(stop); wg.Wait() })
		},
		after: func(r *rig) {
			if a := r.gateway.RawCallback(live.Callback, live.Token,
				`{"epoch":1,"x":"`+strings.Repeat("x", 1<<20)+`"}`); a.Status != http.StatusRequestEntityTooLarge {
				r.t.Errorf("a body beyond the limit: %d, want 413", a.Status)
			}
			a := r.gateway.Callback(live, harness.Callback{Epoch: live.Epoch})
			if a.Status != http.StatusOK || len(a.Streams) != 1 {
				r.t.Errorf("afterwards the consumer is subscribed to %d streams: %d %.200s", len(a.Streams), a.Status,
					a.Body)
			}
		},
	}
}

func TestAPatternThatMatchesVeryManyStreams(t *testing.T) {
	harness.Long(t)
	patternAttack(size(2_000, 50_000)).run(t)
}

func patternAttack(n int) attack {
	return attack{
		name: fmt.Sprintf("a subscription to %d streams", n),
		// A watched stream costs a goroutine; one with a live request, of which there are 10,000 at most, a connection
		// more.
		peak: size(200, 1500), files: min(n, 10_000) + 1000, lull: 10 * time.Minute, ratio: 2,
		prepare: func(r *rig) {
			together(n, func(i int) { r.must(http.MethodPut, fmt.Sprintf("/very/%d", i), "") })
		},
		begin: func(r *rig) func() {
			worker := harness.NewWorker(r.t)
			worker.AnswerDone()
			began := time.Now()
			r.gateway.Subscribe("/very/*", "very", worker)
			if took := time.Since(began); full && took > 2*time.Second {
				r.t.Errorf("the 201 came after %s", took)
			}
			sub, _ := r.gateway.Subscription("very")
			if sub.Backfill == nil && full {
				r.t.Error("the answer does not show that the backfill goes on")
			}
			return func() { r.gateway.DeleteSubscription("/very/*", "very") }
		},
		after: func(r *rig) {
			harness.Eventually(r.t, 10*time.Minute, "the backfill is over", func() error {
				if sub, ok := r.gateway.Subscription("very"); ok && sub.Backfill != nil {
					return fmt.Errorf("%d of %d are done", sub.Backfill.Done, sub.Backfill.Total)
				}
				return nil
			})
		},
	}
}
