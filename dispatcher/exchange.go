package dispatcher

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"reveille/dispatcher/format"
	"reveille/fsm"
)

// overdueAfter is how long an exchange may go on after its context has ended. It is well within fsm.AttemptMargin.
const overdueAfter = time.Second

// errOverdue is the error of an exchange that its attempt did not wait for.
var errOverdue = errors.New("the attempt is over")

// exchange is the part of an attempt that depends on the endpoint: the request and its answer. Usually, net/http ends
// it when its context ends. Otherwise the exchange is overdue: its connection is closed, and the attempt goes on in
// another goroutine. The goroutine of the exchange then has no part in the attempt any more.
type exchange struct {
	// overdue goes on with the attempt.
	overdue func()
	// stop ends the wait for the end of the context.
	stop  func() bool
	trace httptrace.ClientTrace

	mu    sync.Mutex
	state exchangeState
	// set is the set of its connection. It is released as soon as the exchange has ended or is overdue.
	set *connections
	// conn is the connection that net/http has chosen. It is used if it had another request before, and answered once
	// the first byte of the present answer has come.
	conn           net.Conn
	used, answered bool
	// repeated is true once the request was sent again, on another connection.
	repeated bool
	// timer makes the exchange overdue. It runs once the context has ended.
	timer *time.Timer
}

type exchangeState int

const (
	exchangeOpen exchangeState = iota
	exchangeEnded
	exchangeOverdue
)

// newExchange returns an exchange and the request to make in it.
func newExchange(req *http.Request, overdue func()) (*exchange, *http.Request) {
	e := &exchange{overdue: overdue}
	e.trace.GotConn, e.trace.GotFirstResponseByte = e.gotConn, e.gotByte
	return e, req.WithContext(httptrace.WithClientTrace(req.Context(), &e.trace))
}

// begin makes the exchange overdue if it still goes on overdueAfter the end of its context.
func (e *exchange) begin(ctx context.Context) { e.stop = context.AfterFunc(ctx, e.expire) }

// uses notes the set that the exchange uses. If the exchange is overdue, it releases the set and returns false.
func (e *exchange) uses(set *connections) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == exchangeOverdue {
		set.release()
		return false
	}
	e.set = set
	return true
}

func (e *exchange) gotConn(info httptrace.GotConnInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conn, e.used, e.answered = info.Conn, info.Reused, false
}

func (e *exchange) gotByte() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answered = true
}

// repeats says whether to send the request again after an error: once, on a new connection. The endpoint may have
// closed a connection that was used before, which is no failure of the endpoint. A request is not sent again if its
// answer has begun. Nor is it if the endpoint has reset its HTTP/2 stream, except with REFUSED_STREAM.
func (e *exchange) repeats(ctx context.Context, err error) bool {
	var stream http2.StreamError
	if ctx.Err() != nil || errors.As(err, &stream) && stream.Code != http2.ErrCodeRefusedStream {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state != exchangeOpen || !e.used || e.answered || e.repeated {
		return false
	}
	e.repeated, e.conn = true, nil
	return true
}

// swallowed says whether a connection that was used before may lead nowhere, although it takes what it is sent. The
// sign is that the time is up without a byte of an answer.
func (e *exchange) swallowed(ctx context.Context) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.used && !e.answered && errors.Is(ctx.Err(), context.DeadlineExceeded)
}

func (e *exchange) wasRepeated() bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.repeated
}

// peer returns the address that the connection leads to, and its version of TLS, such as "1.3"; both are empty without
// one.
func (e *exchange) peer() (address, version string) {
	if e == nil {
		return "", ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == nil {
		return "", ""
	}
	if t, ok := e.conn.(*tls.Conn); ok {
		version = strings.TrimPrefix(tls.VersionName(t.ConnectionState().Version), "TLS ")
	}
	return e.conn.RemoteAddr().String(), version
}

// expire gives the exchange overdueAfter more time, once its context has ended.
func (e *exchange) expire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == exchangeOpen {
		e.timer = time.AfterFunc(overdueAfter, e.giveUp)
	}
}

// giveUp makes the exchange overdue: the attempt goes on without it.
func (e *exchange) giveUp() {
	e.mu.Lock()
	open := e.state == exchangeOpen
	if open {
		e.state = exchangeOverdue
	}
	conn, set := e.conn, e.set
	e.mu.Unlock()
	if !open {
		return
	}
	if conn != nil {
		closeAtOnce(conn)
	}
	if set != nil {
		set.endsUse()
		set.release()
	}
	e.overdue()
}

// closeAtOnce closes a connection without a TLS close_notify, which may take seconds.
func closeAtOnce(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	_ = conn.Close()
}

// note changes the attempt by a result of the exchange. It returns false if the exchange is overdue; then it changes
// nothing.
func (e *exchange) note(change func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == exchangeOverdue {
		return false
	}
	change()
	return true
}

// end ends the exchange. It returns false if the exchange is overdue. It may be called again, and on nil.
func (e *exchange) end() bool {
	if e == nil {
		return true
	}
	e.mu.Lock()
	was := e.state
	if was == exchangeOpen {
		e.state = exchangeEnded
		e.stop()
		if e.timer != nil {
			e.timer.Stop()
		}
	}
	set := e.set
	e.mu.Unlock()
	if was == exchangeOpen && set != nil {
		set.release()
	}
	return was != exchangeOverdue
}

// ask makes the request of an attempt and notes the answer. It returns errOverdue if the attempt did not wait for it.
func (d *Dispatcher) ask(ctx context.Context, a *attempt) error {
	a.exchange, a.request = newExchange(a.request, func() { d.withoutAnswer(a) })
	a.exchange.begin(a.request.Context())
	response, err := d.sender.send(ctx, a.exchange, a.request)
	if a.exchange.note(func() {
		if err != nil {
			return
		}
		a.response, a.status = response, response.StatusCode
		if !a.readsAnswer() {
			a.took = time.Since(a.began)
		}
	}) {
		return err
	}
	if err == nil {
		_ = response.Body.Close()
	}
	return errOverdue
}

// withoutAnswer goes on with an attempt whose exchange is overdue. A status may have come all the same.
func (d *Dispatcher) withoutAnswer(a *attempt) {
	late := *a // the goroutine of the exchange still uses a
	switch {
	case late.response != nil:
		late.verdict = late.format.Judge(d.answerTo(&late))
	case d.requests.Err() != nil:
		late.verdict = format.Verdict{Result: fsm.AttemptAbandoned}
	default:
		late.verdict = judgeError(context.DeadlineExceeded)
	}
	a.overdue(&late)
}

// closes ends the exchange of an attempt. It returns false if the attempt goes on without it.
func (a *attempt) closes() bool {
	if a.response != nil {
		_ = a.response.Body.Close()
	}
	return a.exchange.end()
}
