package fault

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"reveille/fsm"
)

// operatorPatience is how long an operator waits for an answer.
const operatorPatience = 5 * time.Second

// errand is what the operator does.
type errand int

const (
	// works has dead letters replayed, one or all, and subscriptions paused for a while.
	works errand = iota
	// waits has letters pile up.
	waits
	// clears has all letters replayed, and nothing paused, until there are none.
	clears
)

// operator sees to the dead letters of the receivers that refuse events for good. It asks any replica, and everything
// twice, as one that had no answer in time does.
type operator struct {
	w      *world
	client *http.Client

	mu   sync.Mutex
	errs errand
	// seen are the letters that were listed.
	seen map[fsm.LetterID]bool
}

func (o *operator) turnTo(e errand) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = e
}

func (o *operator) errand() errand {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.errs
}

func (w *world) startOperator() {
	o := &operator{
		w: w, client: &http.Client{Transport: &http.Transport{}, Timeout: operatorPatience},
		seen: map[fsm.LetterID]bool{},
	}
	w.operator = o
	w.t.Cleanup(o.client.CloseIdleConnections)
	for _, s := range pushSubscriptions {
		if s.picky {
			w.busy.Go(func() {
				for paused := false; w.pause(w.between(200*time.Millisecond, time.Second)); {
					paused = o.tend(s.id, paused)
				}
			})
		}
	}
}

// tend sees to a subscription once, and says whether it may be paused after that.
func (o *operator) tend(id string, paused bool) bool {
	e := o.errand()
	list := o.list(id)
	switch {
	case paused && (e != works || o.w.chance(0.5)):
		return !o.command(id, "resume")
	case paused || e == waits:
	case e == works && o.w.chance(0.1):
		o.command(id, "pause")
		return true
	case len(list) > 0 && e == works && o.w.chance(0.5):
		o.twice(func() { o.replay(id, list[o.w.random(len(list))]) })
	case len(list) > 0:
		o.twice(func() { o.replay(id, fsm.LetterID{}) })
	}
	return paused
}

func (o *operator) twice(do func()) {
	var wg sync.WaitGroup
	wg.Go(do)
	wg.Go(do)
	wg.Wait()
}

// call asks any replica. It decodes the answer if that has the status wanted, which it returns.
func (o *operator) call(method, path string, body any, want int, into any) bool {
	at := o.w.replicas[o.w.random(replicas)].Operator
	_, answer, status, err := o.w.request(o.client, method, at+"/api/v1/"+path, "", body)
	return err == nil && status == want && json.Unmarshal(answer, into) == nil
}

func (o *operator) command(id, what string) bool {
	return o.call(http.MethodPost, "subscriptions/"+id+"/"+what, nil, http.StatusOK, new(map[string]any))
}

// list returns the letters of a subscription, as many as it is told.
func (o *operator) list(id string) (ids []fsm.LetterID) {
	for next := ""; ; {
		var page struct {
			Letters []struct {
				ID       string `json:"id"`
				Stream   string `json:"stream"`
				Delivery string `json:"delivery_id"`
			} `json:"dead_letters"`
			Next string `json:"next"`
		}
		path := "dead-letters?subscription=" + id + "&limit=50&cursor=" + url.QueryEscape(next)
		if !o.call(http.MethodGet, path, nil, http.StatusOK, &page) {
			return ids
		}
		for _, l := range page.Letters {
			letterID, err := fsm.ParseLetterID(l.ID, o.w.store.Partitions())
			if err != nil {
				o.w.t.Errorf("a list has the dead letter %q: %v", l.ID, err)
				continue
			}
			ids = append(ids, letterID)
			o.see(letter{
				LetterID: letterID, Consumer: fsm.ConsumerID(id, l.Stream), Delivery: l.Delivery, At: time.Now(),
			})
		}
		if next = page.Next; next == "" {
			return ids
		}
	}
}

func (o *operator) see(l letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.seen[l.LetterID] {
		o.seen[l.LetterID] = true
		o.w.journal.note(func(j *journal) { j.Letters = append(j.Letters, l) })
	}
}

// replay asks for the replay of a letter, or of all that a subscription has.
func (o *operator) replay(id string, letter fsm.LetterID) {
	answered := o.w.journal.asked(&ask{Subscription: id, Letter: letter})
	var body struct {
		Next    string `json:"next"`
		Refused int    `json:"refused"`
	}
	if letter != (fsm.LetterID{}) {
		if o.call(http.MethodPost, "dead-letters/"+letter.String()+"/replay", nil, http.StatusAccepted, &body) {
			answered(true)
		}
		return
	}
	for request := map[string]string{"subscription": id}; ; request["cursor"] = body.Next {
		body.Next = ""
		if !o.call(http.MethodPost, "dead-letters/replay", request, http.StatusAccepted, &body) {
			return // it may go on there
		}
		if body.Refused > 0 {
			o.w.t.Errorf("%d dead letters of %s cannot be replayed", body.Refused, id)
		}
		if body.Next == "" {
			answered(true)
			return
		}
	}
}

// letters returns the dead letters that there are in the end, but for those of events that were handed over: nobody
// replays them.
func (w *world) letters() (left []fsm.DeadLetter) {
	w.t.Helper()
	counts, err := w.store.CountDeadLetters(w.t.Context())
	for p := 0; err == nil && p < len(counts); p++ {
		for id := range counts[p].Of {
			if fsm.IsOwnSubscription(id) || err != nil {
				continue
			}
			var list []fsm.DeadLetter
			all := fsm.LetterSpan{Partition: p, Subscription: id, Through: fsm.MaxLetterNumber}
			list, err = w.store.DeadLetters(w.t.Context(), all, 100)
			left = append(left, list...)
		}
	}
	if err != nil { // it is asked again
		left = append(left, fsm.DeadLetter{Reason: err.Error()})
	}
	return left
}

// subscriptionOf is the subscription that a consumer is of.
func subscriptionOf(consumer string) string {
	id, _, _ := strings.Cut(consumer, ":")
	return id
}

// awaitReplay has letters pile up for a while, has them replayed, and waits until a receiver has a replay in its hands.
// On a busy machine, all replays of a pile may be over before this looks. Then it has another pile made.
func (w *world) awaitReplay(pile time.Duration) {
	ctx, cancel := context.WithTimeout(w.ctx, settleTime)
	defer cancel()
	for ctx.Err() == nil {
		w.operator.turnTo(waits)
		w.pause(pile)
		w.operator.turnTo(clears)
		for range 1000 {
			j := w.journal.copy()
			if slices.ContainsFunc(j.Pushes, func(p *pushed) bool {
				return p.Replay && p.Answered.IsZero() && time.Since(p.At) < time.Second
			}) {
				return
			}
			w.pause(20 * time.Millisecond)
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		w.t.Errorf("nothing was replayed within %s", settleTime)
	}
}

// pileUp has several letters of a stream be there when their replay is asked for.
func pileUp(w *world, span time.Duration) {
	w.operator.turnTo(waits)
	w.pause(span)
	for until := time.Now().Add(settleTime); time.Now().Before(until) && w.pause(100*time.Millisecond); {
		of := map[string]int{}
		for _, l := range w.journal.copy().Letters {
			if of[l.Consumer]++; of[l.Consumer] > 2 {
				return
			}
		}
	}
}

// inReplays does harm while receivers have replays in their hands.
func inReplays(harm func(w *world)) func(*world, time.Duration) {
	return func(w *world, span time.Duration) {
		for _, r := range w.receivers {
			r.behave(behaviour{linger: time.Second})
		}
		for range 3 {
			w.awaitReplay(span / 4)
			harm(w)
			w.operator.turnTo(works)
			w.pause(span / 4)
		}
	}
}
