package dispatcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

const (
	// maxTests bounds the test deliveries in flight. A subscription has at most one.
	maxTests = 16

	reasonStopping = "this replica is stopping"
)

// Test sends a synthetic event to a subscription's endpoint, as a delivery is sent. It is no attempt: no consumer, no
// endpoint's state and no metric changes. It returns fsm.ErrTesting if too many are under way. It returns when the
// endpoint has answered, or its time is up.
func (d *Dispatcher) Test(ctx context.Context, sub fsm.Subscription) (fsm.TestDelivery, error) {
	ends, err := d.beginTest(sub.ID)
	if err != nil || ends == nil {
		return fsm.TestDelivery{Failure: reasonStopping}, err
	}
	defer ends()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.requests, cancel)()
	over := make(chan *attempt, 1)
	a := &attempt{sub: sub, test: true, cancel: cancel, overdue: func(late *attempt) { over <- late }}
	go func() { // it stays behind if net/http does not return
		if d.passTest(ctx, a) {
			over <- a
		}
	}()
	a = <-over
	result := fsm.TestDelivery{Status: a.status, Took: a.took, Failure: a.verdict.Reason}
	if a.answer != "" {
		result.Body = []byte(a.answer)
	}
	if result.Status == 0 && d.requests.Err() != nil {
		result.Failure = reasonStopping
	}
	return result, nil
}

// passTest is pass for a test delivery.
func (d *Dispatcher) passTest(ctx context.Context, a *attempt) bool {
	for _, passes := range slices.Concat(
		[]step{d.prepareTest}, d.stages.allow, d.stages.build, []step{d.sendTest},
	) {
		if !passes(ctx, a) {
			break
		}
	}
	return a.closes()
}

// beginTest returns the function that ends a test delivery, or nil if the program stops.
func (d *Dispatcher) beginTest(id string) (ends func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, busy := d.tests[id]
	switch {
	case d.stopped:
		return nil, nil
	case busy, len(d.tests) == maxTests:
		return nil, fsm.ErrTesting
	}
	d.tests[id] = struct{}{}
	d.attempts.Add(1) // a stop waits for it
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.tests, id)
		d.attempts.Done()
	}, nil
}

func (d *Dispatcher) prepareTest(_ context.Context, a *attempt) bool {
	f, err := format.OfTest(a.sub)
	if err != nil {
		return a.ends(format.Verdict{Reason: err.Error()})
	}
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails: it would end the program
	id := format.TestIDPrefix + hex.EncodeToString(random[:])
	a.format = f
	a.content = format.Content{
		ID: id, Batch: format.TestBatch(a.sub, id, d.cfg.Clock()), PublicURL: d.cfg.PublicURL, Secret: a.sub.Secret,
	}
	return true
}

// sendTest is send and judge, without the parts for attempts only.
func (d *Dispatcher) sendTest(ctx context.Context, a *attempt) bool {
	a.began = time.Now()
	err := d.ask(ctx, a)
	if err != nil {
		if !a.exchange.end() {
			return false
		}
		a.took = time.Since(a.began)
		return a.ends(judgeError(err))
	}
	begins := drain(a.response, a.cancel)
	if !a.closes() {
		return false
	}
	a.answer = mask(a.sub, begins)
	return a.ends(a.format.Judge(d.answerTo(a)))
}
