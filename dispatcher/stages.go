package dispatcher

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// stages are what each attempt passes, in this order, before it is settled. A stage has any number of steps.
type stages struct {
	// prepare finds what to deliver, and how. It reads nothing for an endpoint that is left alone.
	prepare []step
	// allow says whether the delivery may be sent now: prepare may have read for a while.
	allow []step
	// build makes the request, anew for each attempt, with a fresh token and signature.
	build []step
	// send gets the answer.
	send []step
	// judge says what the answer means.
	judge []step
}

// step is a step of a stage. If it returns false, no further step runs: either it has set the verdict, or the attempt
// goes on in another goroutine.
type step func(ctx context.Context, a *attempt) bool

func (d *Dispatcher) newStages() stages {
	return stages{
		prepare: []step{
			d.prepare, d.allowSubscription, d.allowConsent, d.allowEndpoint, d.expectTurn, d.load, d.takeEvent,
		},
		allow: []step{d.allowTarget, d.allowSubscription, d.allowConsent, d.allowOrigin, d.takeTurn},
		build: []step{d.build},
		send:  []step{d.send}, judge: []step{d.judge},
	}
}

// attempt is one delivery attempt on its way through the stages.
type attempt struct {
	sub      fsm.Subscription
	delivery fsm.Delivery
	// slot is the slot that the attempt holds; zero for a test delivery.
	slot slot
	// test is true for a test delivery, which has no wake (testdelivery.go).
	test bool
	// prepare sets kind, format, delivery and host. Only the host of the URL is ever shown: the rest may be a secret.
	kind    kind
	format  format.Format
	content format.Content
	host    string
	// most is how many attempts the event may take that the attempt delivers, if it was handed over.
	most int
	// eventType is fsm.Attempt.EventType; load sets it.
	eventType string
	// build sets request, its body, and cancel, which ends it. Then send sets sent and exchange, and with the answer
	// response and status. Without an answer, the status is 0.
	request  *http.Request
	body     []byte
	cancel   func()
	sent     bool
	exchange *exchange
	response *http.Response
	status   int
	// overdue does the rest of the attempt if its exchange is overdue.
	overdue func(late *attempt)
	// answer is the beginning of the answer's body as text, with secrets masked. It is kept of a 2xx only by a test
	// delivery, and with Config.KeepAnswers.
	answer string
	// asked is when the request was sent.
	asked time.Time
	// began is when the attempt began, verdict its result, and took the time until the result was known.
	began   time.Time
	verdict format.Verdict
	took    time.Duration
	// probe is the endpoint's probe slot that the attempt uses; zero if it is no probe. allowEndpoint sets it.
	probe time.Time
	// turn is what the rate of its endpoint has given it and it has not used yet; nil without one.
	turn *turn
	// failed is true if the attempt failed in a way that allows another attempt, even if it was the last one.
	failed bool
	// noted is true once the store knows what the attempt says about its endpoint.
	noted bool
	// retired is true once the store knows that the endpoint has answered 410.
	retired bool
}

// ends sets the verdict. It returns false, for a step to return.
func (a *attempt) ends(v format.Verdict) bool {
	a.verdict = v
	return false
}

// blocked ends the attempt: nothing is sent, and the delivery waits. That holds no slot, and counts as no attempt. It
// returns false, for a step to return.
func (a *attempt) blocked(why fsm.BlockReason, wait time.Duration) bool {
	return a.ends(format.Verdict{Result: fsm.AttemptBlocked, Blocked: why, Reason: why.Rule().Says, Wait: wait})
}

// over returns the attempt as observers see it.
func (a *attempt) over() fsm.Attempt {
	b := a.content.Batch
	bytes := 0
	if a.sent {
		bytes = len(a.body)
	}
	over := fsm.Attempt{
		Delivery: a.delivery, Host: a.host, Began: a.began, Took: a.took, Sent: a.sent, Result: a.verdict.Result,
		Blocked: a.verdict.Blocked, Status: a.status, Class: string(a.verdict.Class), Reason: a.verdict.Reason,
		DeliveryID: a.content.ID, Events: len(b.Events), From: b.First(), EventType: a.eventType, Bytes: bytes,
		Repeated: a.exchange.wasRepeated(), Answer: a.answer,
		MaxAttempts: cmp.Or(a.most, a.sub.Profile().MaxAttempts()),
	}
	if a.sent {
		over.Waited, over.Exchanged = a.asked.Sub(cmp.Or(a.delivery.Asked, a.began)), a.took-a.asked.Sub(a.began)
		over.Remote, over.TLS = a.exchange.peer()
		over.Extent = a.extent
		if a.response != nil {
			over.HTTP = strings.TrimPrefix(a.response.Proto, "HTTP/")
		}
	}
	return over
}

// pass runs the stages of an attempt. A step that waits bounds its own wait; exchange.go bounds the exchange with the
// endpoint. It returns false if the attempt went on without this goroutine.
func (d *Dispatcher) pass(ctx context.Context, a *attempt) bool {
	a.began = time.Now()
	ctx, cancel := context.WithCancel(ctx) // contexts that a step derives from it end, too
	defer cancel()
	a.cancel = cancel
pass:
	for _, stage := range [...][]step{
		d.stages.prepare, d.stages.allow, d.stages.build, d.stages.send, d.stages.judge,
	} {
		for _, passes := range stage {
			if !passes(ctx, a) {
				break pass
			}
		}
	}
	if !a.closes() {
		return false
	}
	d.conclude(a)
	return true
}

// conclude derives from the verdict of an attempt what the reports need.
func (d *Dispatcher) conclude(a *attempt) {
	a.failed = a.verdict.Result == fsm.AttemptFailed
	a.judgeLast()
	a.took = cmp.Or(a.took, time.Since(a.began))
}
