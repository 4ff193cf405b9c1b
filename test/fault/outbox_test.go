package fault

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// The hand-overs of direct deliveries: so many clients, each of which waits at random from one event to the next.
const (
	senders                = 6
	minHandGap, maxHandGap = 50 * time.Millisecond, 250 * time.Millisecond
	// handOverTimeout is how long a client waits for one answer, handOverPatience for an event to be accepted.
	handOverTimeout, handOverPatience = 5 * time.Second, 5 * time.Minute
	// handedAgain is how often a client hands an event over once more that was accepted, as one that lost the answer.
	handedAgain = 0.1
)

// What the replicas are told of direct deliveries.
const (
	// outboxRoot is the path that the streams of the events lie below. There are so many for each target.
	outboxRoot, outboxLanes = "/outbox", 10
	outboxType              = "fault.event"
	outboxProvider          = "the fault suite"
	outboxSecret            = "whsec_ZXZlcnkgZXZlbnQgaXMgZGVsaXZlcmVkIG9yIGRlYWQ="
	// outboxAttempts are made of an event, hopelessAttempts of one that is never taken.
	outboxAttempts, hopelessAttempts = 6, 2
)

// isRefused says whether targets refuse an event for good, isHopeless whether they never take it.
func isRefused(number int) bool  { return number%20 == 7 }
func isHopeless(number int) bool { return number%40 == 3 }

// handed is an event that a client hands over, with all requests for it. They are the same.
type handed struct {
	Key, Target, Payload string
	// MaxAttempts is 0 for outboxAttempts.
	MaxAttempts int
	Requests    []handing
}

// handing is one request that hands an event over.
type handing struct {
	Sent, Answered time.Time
	// Status is 0 if there was no answer. ID is that of the event if it was accepted; otherwise Code says why not.
	Status   int
	ID, Code string
}

func (r handing) accepted() bool { return r.Status == http.StatusAccepted || r.Status == http.StatusOK }

// accepted returns the first request that was accepted, or nil.
func (h *handed) accepted() *handing {
	for i := range h.Requests {
		if h.Requests[i].accepted() {
			return &h.Requests[i]
		}
	}
	return nil
}

// most is the number of attempts after which the event is dead.
func (h *handed) most() int {
	if h.MaxAttempts > 0 {
		return h.MaxAttempts
	}
	return outboxAttempts
}

// handsOver notes a request before it is sent, and what it returns the answer.
func (j *journal) handsOver(h *handed) (answered func(status int, id, code string)) {
	var i int
	j.note(func(*journal) {
		i = len(h.Requests)
		h.Requests = append(h.Requests, handing{Sent: time.Now()})
	})
	return func(status int, id, code string) {
		j.note(func(*journal) {
			r := &h.Requests[i]
			r.Answered, r.Status, r.ID, r.Code = time.Now(), status, id, code
		})
	}
}

// outbox is how far the hand-overs have got: how many were begun, and how many are over. The world's mu guards it.
type outbox struct {
	begun, over int
	// lanes are the streams that have events, by their target and the last digit of the events' ids.
	lanes map[string]bool
}

// setOutbox sets how events are delivered: quicker than by default, so that a scenario sees all attempts of an event.
func (w *world) setOutbox() {
	w.t.Helper()
	config, _ := json.Marshal(map[string]any{
		"maxAttempts": outboxAttempts, "initialBackoffMs": 500, "backoffMultiplier": 2, "maxBackoffMs": 4000,
		"deliveryTimeoutMs": pushTimeout.Milliseconds(), "secrets": map[string]string{outboxProvider: outboxSecret},
	})
	a := harness.NewClient(w.t, w.replicas[0].URL).Do(http.MethodPatch, "/webhooks/config", string(config))
	if a.Status != http.StatusOK {
		w.t.Fatalf("PATCH /webhooks/config: %d %s", a.Status, a.Body)
	}
}

func (w *world) senderClient() *http.Client {
	client := &http.Client{Transport: &http.Transport{IdleConnTimeout: 5 * time.Second}, Timeout: handOverTimeout}
	w.t.Cleanup(client.CloseIdleConnections)
	return client
}

// fillLanes hands events over until each stream of each target has one: a Redis that is killed may lose that a stream
// exists, see withoutCreations.
func (w *world) fillLanes() {
	w.t.Helper()
	if len(w.targets) == 0 {
		return
	}
	want, until := len(w.targets)*outboxLanes, time.Now().Add(handOverPatience)
	full := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.outbox.lanes) == want
	}
	var all sync.WaitGroup
	for range senders {
		client := w.senderClient()
		all.Go(func() {
			for !full() && time.Now().Before(until) && w.handOver(client) {
			}
		})
	}
	if all.Wait(); !full() {
		w.t.Fatalf("not all of %d streams for direct deliveries have events", want)
	}
}

// handOver hands the next event over, by the same request again until it is accepted. It returns false if there is
// nothing more to hand over, or the event was not accepted.
func (w *world) handOver(client *http.Client) bool {
	w.mu.Lock()
	number := w.outbox.begun
	if w.options.events > 0 && number >= w.options.events {
		w.mu.Unlock()
		return false
	}
	w.outbox.begun++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.outbox.over++
	}()
	h := &handed{
		Key: fmt.Sprintf("event %d", number), Target: w.targets[number%len(w.targets)].url,
		Payload: fmt.Sprintf(`{"number":%d}`, number),
	}
	if isHopeless(number) {
		h.MaxAttempts = hopelessAttempts
	}
	w.journal.note(func(j *journal) { j.Handed = append(j.Handed, h) })
	wanted := 1
	if w.chance(handedAgain) {
		wanted++
	}
	until := time.Now().Add(handOverPatience)
	for replica := number; time.Now().Before(until); replica++ {
		status, wait := w.handsOver(client, replica%replicas, h)
		switch {
		case status == http.StatusAccepted || status == http.StatusOK:
			w.isAccepted(h)
			if wanted--; wanted == 0 {
				return true
			}
		case status != 0 && status != http.StatusServiceUnavailable:
			return false // the checker has a word to say
		case !w.pause(wait):
			return false
		}
	}
	return false
}

// handsOver sends one request to a replica. It returns 0 for no answer, and how long to wait until the next request.
func (w *world) handsOver(client *http.Client, replica int, h *handed) (status int, wait time.Duration) {
	request := map[string]any{
		"target_url": h.Target, "event_type": outboxType, "provider": outboxProvider, "idempotency_key": h.Key,
		"payload": json.RawMessage(h.Payload),
	}
	if h.MaxAttempts > 0 {
		request["max_attempts"] = h.MaxAttempts
	}
	answered := w.journal.handsOver(h)
	at := w.api[replica].URL() + "/webhooks/deliver"
	header, body, status, err := w.request(client, http.MethodPost, at, "", request)
	var answer struct {
		ID    string `json:"id"`
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if err != nil || json.Unmarshal(body, &answer) != nil {
		return 0, w.between(50*time.Millisecond, 300*time.Millisecond)
	}
	answered(status, answer.ID, answer.Error.Code)
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil {
		return status, w.between(50*time.Millisecond, 300*time.Millisecond)
	}
	return status, time.Duration(seconds) * time.Second
}

func (w *world) isAccepted(h *handed) {
	id := h.accepted().ID
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outbox.lanes[h.Target+id[max(0, len(id)-1):]] = true
}

// handedOver says how many hand-overs are over.
func (w *world) handedOver() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outbox.over
}

// How many clients ask at the same time what became of the events. They ask for one in so many keys.
const askers, keysToOne = 8, 10

// statuses counts the events that were handed over, as the statistics tell; as unknown if there was no answer.
func (w *world) statuses() map[fsm.OutboxStatus]int {
	if len(w.targets) == 0 {
		return nil
	}
	var stats struct {
		Statuses map[fsm.OutboxStatus]int `json:"statuses"`
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: operatorPatience}
	_, body, status, err := w.request(client, http.MethodGet,
		w.api[w.random(replicas)].URL()+"/webhooks/stats?hours=1", "", nil)
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &stats) != nil {
		return map[fsm.OutboxStatus]int{"unknown": 1}
	}
	return stats.Statuses
}

// askEvents adds to what is true what Reveille tells of each event. It returns false if none was handed over.
func (w *world) askEvents(j *journal, t *truth) bool {
	if len(w.targets) == 0 {
		return false
	}
	t.Events, t.Keys = map[string]outcome{}, map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for asker := range askers {
		client := w.senderClient()
		all.Go(func() {
			for i := asker; i < len(j.Handed); i += askers {
				h := j.Handed[i]
				if h.accepted() == nil {
					continue
				}
				id, api := h.accepted().ID, w.api[i%replicas].URL()+"/webhooks"
				shown, there := w.askEvent(client, api+"/events/"+id)
				byKey, asked := outcome{}, false
				if i%keysToOne == 0 {
					byKey, asked = w.askEvent(client, api+"/idempotency/"+url.PathEscape(h.Key))
				}
				mu.Lock()
				if there && shown.ID != "" {
					t.Events[id] = shown
				}
				if asked {
					t.Keys[h.Key] = byKey.ID
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return true
}

// askEvent asks what became of an event. It is empty if Reveille knows of none. ok is false if there was no answer.
func (w *world) askEvent(client *http.Client, at string) (o outcome, ok bool) {
	_, body, status, err := w.request(client, http.MethodGet, at, "", nil)
	var shown struct {
		outcome
		Payload json.RawMessage `json:"payload"`
	}
	switch {
	case err != nil:
		return o, false
	case status == http.StatusNotFound:
		return o, true
	case status != http.StatusOK || json.Unmarshal(body, &shown) != nil:
		return o, false
	}
	if o = shown.outcome; string(shown.Payload) != "null" {
		o.Payload = string(shown.Payload)
	}
	return o, true
}
