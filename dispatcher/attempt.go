package dispatcher

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"go.uber.org/zap"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

const (
	// acceptAfter is how long a 2xx may be without its whole body before the store is told of the 2xx. The function
	// that holds its answer open while it works is then not woken a second time by the waking timeout.
	acceptAfter = time.Second
	// maxAnswer is how much of an answer's body is read, in bytes, and drainFor for how long if
	// the body decides nothing.
	maxAnswer = 64 << 10
	drainFor  = time.Second
	// reportRetry is the first pause before a result is offered to the store again; it doubles, up to reportRetryMax.
	reportRetry    = 100 * time.Millisecond
	reportRetryMax = 2 * time.Second
)

// attempt is one delivery attempt on its way through the stages of perform.
type attempt struct {
	sub  fsm.Subscription
	wake fsm.Wake
	// host of the webhook. It is all that is ever told of the URL: the rest may be a secret.
	host string
	// began is when the request was begun, verdict what the attempt came to, status that of the answer (0 without one),
	// and took how long it was until the verdict was known.
	began   time.Time
	verdict format.Verdict
	status  int
	took    time.Duration
}

// over is what observers are told of the attempt.
func (a *attempt) over() fsm.Attempt {
	return fsm.Attempt{
		Wake: a.wake, Host: a.host, Began: a.began, Took: a.took, Result: a.verdict.Result, Status: a.status,
		Class: string(a.verdict.Class), Reason: a.verdict.Reason,
	}
}

// perform makes one delivery attempt: it sends it, tells the observers how it went, reports it to the store, gives the
// slot back and does what the store asks for.
func (d *Dispatcher) perform(sl slot, sub fsm.Subscription, w fsm.Wake) {
	a := &attempt{sub: sub, wake: w}
	ctx := d.traces.begin(d.requests, w)
	a.verdict = d.send(ctx, a)
	over := a.over()
	d.traces.end(ctx, over)
	d.noteStanding(sl.lane, over.Result)
	d.cfg.Outcomes.Attempted(over)
	out := d.report(a)
	d.release(sl)
	d.follow(out)
}

// send makes the request of an attempt and returns the verdict on it.
func (d *Dispatcher) send(ctx context.Context, a *attempt) format.Verdict {
	a.began = time.Now()
	defer func() { a.took = cmp.Or(a.took, time.Since(a.began)) }()
	f, err := format.Of(a.sub)
	if err != nil {
		return format.Verdict{Result: fsm.AttemptWaiting, Class: format.ClassUnknownFormat, Reason: err.Error()}
	}
	d.metrics.sends(a.wake)
	ctx, cancel := context.WithTimeout(ctx, d.cfg.RequestTimeout)
	defer cancel()
	req, err := d.request(ctx, f, a)
	if err != nil {
		return judgeError(err)
	}
	resp, err := d.sender.send(ctx, req)
	switch {
	case err == nil:
	case d.requests.Err() != nil:
		return format.Verdict{Result: fsm.AttemptAbandoned}
	default:
		return judgeError(err)
	}
	defer resp.Body.Close()
	a.status = resp.StatusCode
	answer := format.Answer{Status: resp.StatusCode, Header: resp.Header, At: d.cfg.Clock()}
	if format.Success(resp.StatusCode) {
		early := d.acceptEarly(a.wake)
		answer.Body = readAnswer(resp.Body)
		early.wait()
	} else {
		a.took = time.Since(a.began)
		drain(resp.Body, cancel)
	}
	return f.Judge(answer)
}

// request builds a request anew for each attempt, with a token and a signature of this moment.
func (d *Dispatcher) request(ctx context.Context, f format.Format, a *attempt) (*http.Request, error) {
	now := d.cfg.Clock()
	header, body, err := f.Request(format.Delivery{
		Wake: a.wake, PublicURL: d.cfg.PublicURL, Secret: a.sub.Secret, At: now,
		Token: d.cfg.Tokens.Mint(a.wake.Consumer, a.wake.Generation, a.wake.Epoch, now),
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.sub.Webhook, bytes.NewReader(body))
	if err != nil {
		return nil, errTarget // its text holds the URL
	}
	a.host, req.Header = req.URL.Host, header
	req.Header.Set("User-Agent", d.cfg.UserAgent)
	d.traces.send(ctx, req.Header)
	return req, nil
}

// drain reads a body that decides nothing, so that its connection can be used again.
func drain(body io.Reader, cancel func()) {
	defer time.AfterFunc(drainFor, cancel).Stop()
	_, _ = io.CopyN(io.Discard, body, maxAnswer)
}

// readAnswer returns a body that arrived completely and is not too long, otherwise nil.
func readAnswer(r io.Reader) []byte {
	body, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil || len(body) > maxAnswer {
		return nil
	}
	return body
}

// earlyAccept reports a 2xx whose body is slow.
type earlyAccept struct {
	timer *time.Timer
	done  chan struct{}
}

func (d *Dispatcher) acceptEarly(w fsm.Wake) earlyAccept {
	e := earlyAccept{done: make(chan struct{})}
	e.timer = time.AfterFunc(acceptAfter, func() {
		defer close(e.done)
		ctx, cancel := context.WithTimeout(d.reports, reportTimeout)
		defer cancel()
		out, err := d.cfg.Store.Accept(ctx, w.Ref())
		d.noteStore(err) // the report of the whole answer comes again
		d.follow(out)
	})
	return e
}

// wait returns when no early report is under way, and none follows.
func (e earlyAccept) wait() {
	if !e.timer.Stop() {
		<-e.done
	}
}

// report tells the store what an attempt came to, and returns what it asks for. A store that is not available is asked
// again for reportTimeout; then the attempt's deadline decides.
func (d *Dispatcher) report(a *attempt) fsm.Outcome {
	ctx, cancel := context.WithTimeout(d.reports, reportTimeout)
	defer cancel()
	for pause := reportRetry; ; pause = min(2*pause, reportRetryMax) {
		out, err := d.tell(ctx, a.wake, a.verdict)
		if err == nil {
			return out
		}
		if errors.Is(err, fsm.ErrUnavailable) {
			d.noteStore(err)
			if sleep(ctx, pause) {
				continue
			}
		}
		d.giveUp(a.wake, err)
		return fsm.Outcome{}
	}
}

func (d *Dispatcher) tell(ctx context.Context, w fsm.Wake, v format.Verdict) (fsm.Outcome, error) {
	switch v.Result {
	case fsm.AttemptAccepted:
		return d.cfg.Store.Accept(ctx, w.Ref())
	case fsm.AttemptDone:
		return d.cfg.Store.Finish(ctx, w.Ref(), w.Streams)
	case fsm.AttemptAbandoned:
		return fsm.Outcome{}, nil
	case fsm.AttemptWaiting:
		return d.cfg.Store.Park(ctx, w.Ref(), parkTime)
	case fsm.AttemptFailed, fsm.AttemptRetired:
	}
	return d.cfg.Store.Fail(ctx, w.Ref(), fsm.Failure{
		RetryAfter: v.RetryAfter, Retired: v.Result == fsm.AttemptRetired, Reason: v.Reason,
	})
}

func (d *Dispatcher) giveUp(w fsm.Wake, err error) {
	d.metrics.lost.Inc()
	if times, log := d.unreported.Happened(d.cfg.Clock()); log {
		d.log.Error("the result of a delivery attempt was not stored; its deadline decides what happens next",
			zap.Int("times", times),
			zap.String("subscription", w.Subscription), zap.String("consumer", w.Consumer),
			zap.Int64("epoch", w.Epoch), zap.String("wake_id", w.WakeID), zap.Error(err))
	}
}

// noteStore logs that the store did not do what it was asked for, unless this program is stopping.
func (d *Dispatcher) noteStore(err error) {
	switch {
	case err == nil || d.reports.Err() != nil:
	case errors.Is(err, fsm.ErrUnavailable):
		d.outage.failed(err)
	default:
		if times, log := d.broken.Happened(d.cfg.Clock()); log {
			d.log.Error("redis refused a call", zap.Int("times", times), zap.Error(err))
		}
	}
}

// noteStanding remembers how the endpoint of a subscription does.
func (d *Dispatcher) noteStanding(l *lane, r fsm.AttemptResult) {
	if r.Tells() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.slots.ended(l, r.OK())
	}
}

// sleep returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
