package fault

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"reveille/test/harness"
)

// direct is a delivery of an event that reached its target. The Delivery of the pushed is the event's id.
type direct struct {
	pushed
	Key, Target, Body string
	Attempt           int
}

// came notes a delivery; what it returns notes the answer, before it is sent.
func (j *journal) came(d *direct) (answered func(status int)) {
	j.note(func(j *journal) { j.Directs = append(j.Directs, d) })
	return func(status int) {
		j.note(func(*journal) { d.Answered, d.Status = time.Now(), status })
	}
}

// target is an endpoint that events are handed over for.
type target struct {
	w   *world
	url string

	conduct
	// took has the ids of the events that it took; mu of conduct guards it.
	took map[string]bool
}

func (w *world) startTargets() {
	w.t.Helper()
	if w.options.targets == 0 {
		return
	}
	w.outbox.lanes = map[string]bool{}
	for range w.options.targets {
		addr := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(w.t))
		ln, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", addr)
		if err != nil {
			w.t.Fatal(err)
		}
		r := &target{w: w, url: w.connect(linkWebhook, -1, addr).URL() + "/hook", took: map[string]bool{}}
		w.serve(ln, r)
		w.targets = append(w.targets, r)
	}
	w.setOutbox()
}

// ServeHTTP takes an event, or does not.
func (r *target) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // cut on the way
	}
	d := r.read(req.Header, body)
	var payload struct {
		Number int `json:"number"`
	}
	if err := json.Unmarshal(body, &payload); err != nil {
		d.Forged = err.Error()
	}
	answered := r.w.journal.came(d)
	r.w.ends(req)
	status, broken := r.answer(payload.Number, d.Delivery)
	if broken != nil {
		r.w.drew(broken.name)
		if broken.status != 0 {
			answered(broken.status)
		}
		broken.send(r.w, rw)
		return
	}
	answered(status)
	r.w.drawEnd(req, r.behaviour().broken)
	rw.WriteHeader(status)
}

// read returns what a delivery says.
func (r *target) read(h http.Header, body []byte) *direct {
	d := &direct{Target: r.url, Body: string(body)}
	d.At, d.Delivery, d.Replay = time.Now(), h.Get("X-Webhook-ID"), h.Get("Reveille-Replay") != ""
	seconds, _ := strconv.ParseInt(h.Get("Webhook-Timestamp"), 10, 64)
	d.Sent = time.Unix(seconds, 0)
	if err := harness.VerifyStandard(outboxSecret, h, body, d.Sent); err != nil {
		d.Forged = err.Error()
	}
	d.Attempt, _ = strconv.Atoi(h.Get("X-Webhook-Attempt"))
	for name, want := range map[string]string{
		"Webhook-Id": d.Delivery, "X-Webhook-Event": outboxType, "X-Webhook-Provider": outboxProvider,
		"X-Idempotency-Key": "",
	} {
		got, err := url.PathUnescape(h.Get(name))
		if want == "" {
			d.Key = got
		} else if err != nil || got != want {
			d.Forged = fmt.Sprintf("%s is %q, want %q", name, got, want)
		}
	}
	return d
}

// answer draws the answer to an event. What the target took, it takes again.
func (r *target) answer(number int, id string) (status int, broken *brokenAnswer) {
	b := r.behaviour()
	switch {
	case b.status != 0:
		return b.status, nil
	case isRefused(number):
		return refusedForGood, nil
	case isHopeless(number):
		return http.StatusServiceUnavailable, nil
	case r.isTaken(id):
		return http.StatusNoContent, nil
	case r.w.chance(pushSilent):
		r.w.pause(pushTimeout + time.Second)
		panic(http.ErrAbortHandler)
	case r.w.chance(pushCut):
		panic(http.ErrAbortHandler)
	case r.w.chance(pushBroken + b.broken):
		broken = &brokenAnswers[r.w.random(len(brokenAnswers))]
		if broken.status/100 == 2 {
			r.takes(id)
		}
		return broken.status, broken
	case r.w.chance(pushRefused):
		return http.StatusServiceUnavailable, nil
	case r.w.chance(pushSlow):
		r.w.pause(r.w.between(0, time.Second))
	default:
		r.w.pause(r.w.between(b.linger/2, b.linger))
	}
	r.takes(id)
	return http.StatusNoContent, nil
}

func (r *target) takes(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took[id] = true
}

func (r *target) isTaken(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.took[id]
}
