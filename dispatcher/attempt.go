package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

const (
	// acceptAfter is how long a 2xx may be without its whole body before the store is told of the 2xx. The function that
	// holds its answer open while it works is then not woken a second time by the waking timeout.
	acceptAfter = time.Second
	// drainFor and maxAnswer bound what is read of a body that decides nothing, so that its connection can be used again.
	drainFor = time.Second
	// reportRetry is the first pause before a result is offered to the store again; it doubles, up to reportRetryMax.
	reportRetry    = 100 * time.Millisecond
	reportRetryMax = 2 * time.Second
)

// attempt makes one delivery attempt, reports its result and gives the slot back.
func (d *Dispatcher) attempt(sl slot, sub fsm.Subscription, w fsm.Wake) {
	begun := time.Now()
	d.metrics.sends(w)
	ctx := d.traces.begin(d.requests, w)
	a, host := d.post(ctx, sub, w)
	d.traces.end(ctx, w, host, a)
	d.noteResult(sl.lane, sub, w, host, a)
	if c := d.log.Check(zap.DebugLevel, "delivery attempt"); c != nil {
		c.Write(zap.String("subscription", sub.ID), zap.String("consumer", w.Consumer), zap.Int64("epoch", w.Epoch),
			zap.String("wake_id", w.WakeID), zap.Int("attempt", w.Attempt), zap.String("host", host), zap.Bool("ok", a.ok()),
			zap.Bool("done", a.result == done), zap.String("reason", a.reason), zap.Duration("took", time.Since(begun)))
	}
	out := d.report(w, a)
	if out.Removed > 0 && !a.ok() {
		d.noteRemoved("a consumer was removed: its deliveries have failed for too long", out.Removed,
			zap.String("subscription", sub.ID), zap.String("consumer", w.Consumer), zap.Int64("epoch", w.Epoch), zap.String("wake_id", w.WakeID))
	}
	d.release(sl)
	d.follow(out)
}

// post sends a wake and judges what comes of it. Each attempt is built anew, with a token and a signature of this moment.
func (d *Dispatcher) post(ctx context.Context, sub fsm.Subscription, w fsm.Wake) (a answer, host string) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.RequestTimeout)
	defer cancel()
	begun := time.Now()
	defer func() {
		if a.took == 0 {
			a.took = time.Since(begun)
		}
	}()
	now := d.cfg.Clock()
	body, err := EncodePayload(w, d.cfg.PublicURL, d.cfg.Tokens.Mint(w.Consumer, w.Generation, w.Epoch, now))
	if err != nil {
		return judgeError(err), ""
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, sub.Webhook, bytes.NewReader(body))
	if err != nil {
		return judgeError(errTarget), ""
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", d.cfg.UserAgent)
	req.Header.Set(SignatureHeader, Sign(sub.Secret, now, body))
	d.traces.send(ctx, req.Header)

	resp, err := d.sender.send(ctx, req)
	if err != nil {
		if d.requests.Err() != nil {
			return answer{result: abandoned}, req.URL.Host
		}
		return judgeError(err), req.URL.Host
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		a := judgeAnswer(resp.StatusCode, resp.Header, nil, d.cfg.Clock())
		a.status, a.took = resp.StatusCode, time.Since(begun)
		defer time.AfterFunc(drainFor, cancel).Stop()
		_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
		return a, req.URL.Host
	}
	early := d.acceptEarly(w)
	said := readAnswer(resp.Body)
	early.wait()
	a = judgeAnswer(resp.StatusCode, resp.Header, said, d.cfg.Clock())
	a.status = resp.StatusCode
	return a, req.URL.Host
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
		d.noteStore(d.cfg.Store.Accept(ctx, w.Ref())) // on an error, the report of the whole answer comes again
	})
	return e
}

// wait ends the matter: nothing is reported early after it.
func (e earlyAccept) wait() {
	if !e.timer.Stop() {
		<-e.done
	}
}

// report tells the store what an attempt came to, and returns what it asks for. A store that is not available is asked
// again for reportTimeout; then the attempt's deadline decides.
func (d *Dispatcher) report(w fsm.Wake, a answer) fsm.Outcome {
	ctx, cancel := context.WithTimeout(d.reports, reportTimeout)
	defer cancel()
	for pause := reportRetry; ; pause = min(2*pause, reportRetryMax) {
		out, err := d.tell(ctx, w, a)
		if err == nil {
			return out
		}
		if errors.Is(err, fsm.ErrUnavailable) {
			d.noteStore(err)
			if sleep(ctx, pause) {
				continue
			}
		}
		d.giveUp(w, err)
		return fsm.Outcome{}
	}
}

func (d *Dispatcher) tell(ctx context.Context, w fsm.Wake, a answer) (fsm.Outcome, error) {
	switch a.result {
	case accepted:
		return fsm.Outcome{}, d.cfg.Store.Accept(ctx, w.Ref())
	case done:
		return d.cfg.Store.Finish(ctx, w.Ref(), w.Streams)
	case abandoned:
		return fsm.Outcome{}, nil
	case failed, retired:
	}
	return d.cfg.Store.Fail(ctx, w.Ref(), fsm.Failure{RetryAfter: a.retryAfter, Retired: a.result == retired, Reason: a.reason})
}

func (d *Dispatcher) giveUp(w fsm.Wake, err error) {
	d.metrics.lost.Inc()
	if times, log := d.unreported.Happened(d.cfg.Clock()); log {
		d.log.Error("the result of a delivery attempt was not stored; its deadline decides", zap.Int("times", times),
			zap.String("subscription", w.Subscription), zap.String("consumer", w.Consumer), zap.Int64("epoch", w.Epoch), zap.String("wake_id", w.WakeID), zap.Error(err))
	}
}

// noteStore logs that the store did not do what it was asked for, unless it is this program that stops.
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

// noteResult remembers how a subscription's endpoint does, and logs its first failure, a summary now and then, and that
// it works again.
func (d *Dispatcher) noteResult(l *lane, sub fsm.Subscription, w fsm.Wake, host string, a answer) {
	d.mu.Lock()
	d.metrics.ended(l.metrics, w, a)
	if a.result == abandoned {
		d.mu.Unlock()
		return
	}
	d.slots.ended(l, a.ok())
	d.mu.Unlock()
	trouble, says := &l.trouble, "webhook delivery failed"
	switch {
	case a.ok():
		wasFailing, wasRetired := l.trouble.Over(), l.retired.Over()
		if wasFailing || wasRetired {
			d.log.Info("webhook takes deliveries again", zap.String("subscription", sub.ID), zap.String("host", host))
		}
		return
	case a.result == retired:
		trouble, says = &l.retired, "webhook answered 410: its consumers are left alone until the subscription is resumed"
	}
	if times, log := trouble.Happened(d.cfg.Clock()); log {
		d.log.Warn(says, zap.String("subscription", sub.ID), zap.String("host", host),
			zap.String("reason", a.reason), zap.Int("times", times), zap.String("consumer", w.Consumer),
			zap.Int64("epoch", w.Epoch), zap.String("wake_id", w.WakeID), zap.Int("attempt", w.Attempt))
	}
}

// noteRemoved logs that consumers are gone, which nobody but an operator can bring back.
func (d *Dispatcher) noteRemoved(says string, n int, of ...zap.Field) {
	if times, log := d.removed.Happened(d.cfg.Clock()); log {
		d.log.Warn(says, append(of, zap.Int("consumers", n), zap.Int("times", times))...)
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
