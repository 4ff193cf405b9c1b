package dispatcher

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// stages are what each attempt passes, in this order, before it is recorded. A stage has any number of steps.
type stages struct {
	// prepare finds out what is to be delivered, and how. Nothing is read for an endpoint that is left alone.
	prepare []step
	// allow says whether it may be sent now; to read may have taken a while.
	allow []step
	// build makes the request anew for each attempt, with a token and a signature of this moment.
	build []step
	// send gets the answer.
	send []step
	// judge says what the answer means.
	judge []step
}

// step is a step of a stage. It returns false to end the attempt: it has set the verdict, and no further step runs.
type step func(ctx context.Context, a *attempt) bool

func (d *Dispatcher) newStages() stages {
	return stages{
		prepare: []step{d.prepare, d.allowSubscription, d.allowEndpoint, d.load},
		allow:   []step{d.allowTarget, d.allowSubscription}, build: []step{d.build},
		send: []step{d.send}, judge: []step{d.judge},
	}
}

// attempt is one delivery attempt on its way through the stages.
type attempt struct {
	sub  fsm.Subscription
	wake fsm.Wake
	// slot is what it holds; nil for a test delivery.
	slot *slot
	// test is true of a test delivery, which has no wake (testdelivery.go).
	test bool
	// prepare sets kind, format, delivery and host. Of the URL only the host is ever shown: the rest may be a secret.
	kind     kind
	format   format.Format
	delivery format.Delivery
	host     string
	// eventType is fsm.Attempt.EventType; load sets it.
	eventType string
	// build sets request, the size of its body in bytes, and cancel, which ends it; send sets sent and exchange, then
	// response and status, which is 0 without an answer.
	request  *http.Request
	size     int
	cancel   func()
	sent     bool
	exchange *exchange
	response *http.Response
	status   int
	// overdue goes on with what is left of the attempt, if its exchange is overdue.
	overdue func(late *attempt)
	// answer is how the body of an answer begins that is no success, as text.
	answer string
	// began is when the attempt was begun, verdict what it came to, and took how long it was until that was known.
	began   time.Time
	verdict format.Verdict
	took    time.Duration
	// probe is the slot of the probe that the attempt is; zero if it is none. allowEndpoint sets it.
	probe time.Time
	// paused is true if it waits because its subscription is paused.
	paused bool
	// failed is true if it failed and may be tried again, be it the last or not.
	failed bool
	// noted is true once the store knows what the attempt says of its endpoint.
	noted bool
}

// ends sets the verdict and returns false, for a step to return.
func (a *attempt) ends(v format.Verdict) bool {
	a.verdict = v
	return false
}

// over is what observers are told of the attempt.
func (a *attempt) over() fsm.Attempt {
	b := a.delivery.Batch
	bytes := 0
	if a.sent {
		bytes = a.size
	}
	return fsm.Attempt{
		Wake: a.wake, Host: a.host, Began: a.began, Took: a.took, Sent: a.sent, Result: a.verdict.Result,
		Status: a.status, Class: string(a.verdict.Class), Reason: a.verdict.Reason, DeliveryID: a.delivery.ID,
		Events: len(b.Events), From: b.First(), EventType: a.eventType, Bytes: bytes,
		Repeated: a.exchange.wasRepeated(),
	}
}

// pass has an attempt pass the stages. A step that waits for something bounds that itself; the exchange with the
// endpoint is bounded here (exchange.go). It returns false if the attempt went on without this goroutine.
func (d *Dispatcher) pass(ctx context.Context, a *attempt) bool {
	a.began = time.Now()
	ctx, cancel := context.WithCancel(ctx) // whatever a step makes of it ends with it
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

// conclude says what is to be told of an attempt that has its verdict.
func (d *Dispatcher) conclude(a *attempt) {
	a.failed = a.verdict.Result == fsm.AttemptFailed
	a.judgeLast()
	a.took = cmp.Or(a.took, time.Since(a.began))
}
