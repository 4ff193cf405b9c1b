package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

const (
	// acceptAfter is how long the body of a 2xx may be incomplete before the store is told of the 2xx. A function that
	// holds its answer open while it works is then not woken again by the waking timeout.
	acceptAfter = time.Second
	// maxAnswer is how many bytes of an answer's body are read at most. A body that decides nothing is read for
	// drainFor at most.
	maxAnswer = 64 << 10
	drainFor  = time.Second
)

// perform makes one delivery attempt, frees the slot, and does what the store asks for. It returns false if the
// exchange of the attempt is overdue: then another worker does the rest in place of this one.
func (d *Dispatcher) perform(a *attempt) bool {
	ctx := d.traces.begin(d.requests, a.delivery)
	a.overdue = func(late *attempt) {
		d.worker(func() bool {
			d.conclude(late)
			d.finished(ctx, late)
			return true
		})
	}
	if !d.pass(ctx, a) {
		return false
	}
	d.finished(ctx, a)
	return true
}

func (d *Dispatcher) finished(ctx context.Context, a *attempt) {
	out := d.settle(ctx, a)
	d.rates.unused(a.turn)
	d.release(a.slot)
	d.follow(out)
}

// prepare finds how to deliver a wake.
func (d *Dispatcher) prepare(_ context.Context, a *attempt) bool {
	f, err := format.Of(a.sub)
	if err != nil {
		return a.ends(format.Verdict{
			Result: fsm.AttemptBlocked, Blocked: fsm.BlockedUnknown,
			Class: format.ClassUnknownFormat, Reason: err.Error(),
		})
	}
	a.kind, a.format = d.kinds[a.sub.Mode], f
	a.content = format.Content{Delivery: a.delivery, PublicURL: d.cfg.PublicURL, Secret: a.sub.Secret}
	a.host = hostOf(a.sub.Webhook)
	return true
}

// hostOf returns what may be shown of a webhook.
func hostOf(webhook string) string {
	if u, err := url.Parse(webhook); err == nil {
		return u.Host
	}
	return ""
}

// load finds what to deliver.
func (d *Dispatcher) load(ctx context.Context, a *attempt) bool { return a.kind.load(ctx, a) }

// allowTarget judges the URL again: the settings may be stricter than when the subscription was created.
func (d *Dispatcher) allowTarget(_ context.Context, a *attempt) bool {
	if _, err := d.guard.parseTarget(a.sub.Webhook); err != nil {
		return a.ends(judgeError(errTarget))
	}
	return true
}

func (d *Dispatcher) build(ctx context.Context, a *attempt) bool {
	limit := cmp.Or(a.sub.Timeout, d.cfg.RequestTimeout)
	if a.delivery.Patience > 0 { // it ends before the deadline, which a change of the subscription does not move
		limit = min(limit, a.delivery.Patience-fsm.AttemptMargin)
	}
	ctx, a.cancel = context.WithTimeout(ctx, limit)
	a.content.At = d.cfg.Clock()
	switch err := d.compose(ctx, a); {
	case errors.Is(err, errTarget):
		return a.ends(judgeError(errTarget))
	case err != nil:
		v := format.Verdict{
			Result: fsm.AttemptFailed, Class: format.ClassNotBuilt, Reason: "no request can be made of it",
		}
		if a.sub.Mode == fsm.ModePush { // the next request could not be made either
			v.Result = fsm.AttemptDead
		}
		return a.ends(v)
	}
	return true
}

func (d *Dispatcher) send(ctx context.Context, a *attempt) bool {
	d.metrics.sends(a.delivery)
	a.sent, a.asked = true, time.Now()
	err := d.ask(ctx, a)
	switch {
	case err == nil:
		return true
	case errors.Is(err, errOverdue), !a.exchange.end(): // the attempt goes on without this goroutine
		return false
	case d.requests.Err() != nil:
		return a.ends(format.Verdict{Result: fsm.AttemptAbandoned})
	}
	return a.ends(judgeError(err))
}

func (d *Dispatcher) judge(_ context.Context, a *attempt) bool {
	answer := d.answerTo(a)
	begins := ""
	if a.readsAnswer() {
		early := d.acceptEarly(a.delivery.Ref())
		defer early.wait()
		answer.Body = readAnswer(a.response)
		if d.cfg.KeepAnswers {
			begins = string(answer.Body[:min(len(answer.Body), fsm.MaxLetterAnswer)])
		}
	} else {
		begins = drain(a.response, a.cancel)
	}
	if !a.closes() {
		return false
	}
	if !format.Success(a.status) || d.cfg.KeepAnswers {
		// What legible takes out may stand within a secret, either in the answer or in the request. So mask runs before
		// and after it.
		secrets := a.carried()
		a.answer = mask(a.sub, legible(mask(a.sub, begins, secrets...)), secrets...)
	}
	return a.ends(a.format.Judge(answer))
}

// readsAnswer says whether the body of the answer decides anything.
func (a *attempt) readsAnswer() bool { return a.kind.reads && format.Success(a.status) }

// drain reads a body that decides nothing, so that its connection can be used again. It returns the decoded beginning
// of the body.
func drain(res *http.Response, cancel func()) string {
	if res.Body == http.NoBody {
		return ""
	}
	defer time.AfterFunc(drainFor, cancel).Stop()
	body := io.LimitReader(res.Body, maxAnswer)
	var begins strings.Builder
	_, _ = io.CopyN(&begins, decoded(res.Header, body), fsm.MaxLetterAnswer)
	_, _ = io.Copy(io.Discard, body)
	return begins.String()
}

// legible takes invalid UTF-8 and unprintable characters out of a text: they could act on the place that shows the
// text. Line feeds and tabs stay.
func legible(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// readAnswer returns a body without its codings. It returns nil if the body did not arrive completely, or is longer
// than maxAnswer with or without its codings.
func readAnswer(res *http.Response) []byte {
	raw := &io.LimitedReader{R: res.Body, N: maxAnswer + 1}
	body, err := io.ReadAll(io.LimitReader(decoded(res.Header, raw), maxAnswer+1))
	if err != nil || len(body) > maxAnswer || raw.N == 0 {
		return nil
	}
	return body
}

// earlyAccept reports a 2xx whose body is slow.
type earlyAccept struct {
	timer *time.Timer
	done  chan struct{}
}

func (d *Dispatcher) acceptEarly(ref fsm.DeliveryRef) earlyAccept {
	e := earlyAccept{done: make(chan struct{})}
	e.timer = time.AfterFunc(acceptAfter, func() {
		defer close(e.done)
		ctx, cancel := context.WithTimeout(d.reports, reportTimeout)
		defer cancel()
		out, err := d.cfg.Store.Accept(ctx, ref)
		d.noteStore(err) // the report of the whole answer follows
		d.follow(out)
	})
	return e
}

// wait returns when no early report is under way and none can follow.
func (e earlyAccept) wait() {
	if !e.timer.Stop() {
		<-e.done
	}
}
