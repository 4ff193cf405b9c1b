package dispatcher

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"reveille/fsm"
)

// maxAnswer is how much of an answer's body is read, in bytes. A longer one is not looked at.
const maxAnswer = 64 << 10

// result is what an attempt came to.
type result int

const (
	// failed: to be retried by the schedule.
	failed result = iota
	// retired: the endpoint answered 410 and is left alone until the subscription is resumed.
	retired
	// accepted: a 2xx; the consumer is at work and will use the callback API.
	accepted
	// done: a 2xx that says that the work is done already (webhook spec, Synchronous Done).
	done
	// abandoned: this program cancelled the request as it stopped; nothing is known.
	abandoned
)

// results is how many there are.
const results = int(abandoned) + 1

// answer is the judgement of one attempt.
type answer struct {
	result result
	// retryAfter is the least time the endpoint wants to be left alone; 0 if it did not say.
	retryAfter time.Duration
	// reason of a failure in a few words. It never repeats anything that the endpoint sent: that may be an echo of the
	// request with its token.
	reason string
	// status of the answer, 0 without one; took is how long it was until that was known.
	status int
	took   time.Duration
}

func (a answer) ok() bool { return a.result == accepted || a.result == done }

// judgeError is the answer of an attempt that got no status.
func judgeError(err error) answer { return answer{result: failed, reason: reasonOf(err)} }

// judgeAnswer maps a status, and of a 2xx the body, to what the attempt came to. body is nil if it did not arrive
// completely or was longer than maxAnswer. This and judgeError are the only places that decide:
//
//	no status: refused, reset, cut, timed out, prohibited  failed
//	2xx, body is a JSON object with "done": true            done
//	2xx, any other body, or one too long or incomplete      accepted
//	410                                                     retired
//	429, 503                                                failed, not before Retry-After
//	anything else, redirects included                       failed
func judgeAnswer(status int, header http.Header, body []byte, now time.Time) answer {
	switch {
	case status >= 200 && status <= 299:
		if saysDone(body) {
			return answer{result: done}
		}
		return answer{result: accepted}
	case status == http.StatusGone:
		return answer{result: retired, reason: "status 410"}
	}
	a := answer{result: failed, reason: "status " + strconv.Itoa(status)}
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		a.retryAfter = parseRetryAfter(header.Get("Retry-After"), now)
	case status >= 300 && status <= 399:
		a.reason += " (redirects are not followed)"
	}
	return a
}

// saysDone wants the boolean true under the very name "done", and nothing that merely resembles it.
func saysDone(body []byte) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(body, &fields) == nil && string(fields["done"]) == "true"
}

// parseRetryAfter reads seconds or an HTTP date. What cannot be read, is negative or past is 0; the result is at most
// fsm.MaxRetryAfter.
func parseRetryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if v == "" {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n > int64(fsm.MaxRetryAfter/time.Second) {
			return fsm.MaxRetryAfter
		}
		return time.Duration(n) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), fsm.MaxRetryAfter)
}

// outOfFiles says whether a name was not looked up for want of files. The resolver keeps nothing of its error but the text.
func outOfFiles(err *net.DNSError) bool {
	return strings.HasSuffix(err.Err, syscall.EMFILE.Error()) || strings.HasSuffix(err.Err, syscall.ENFILE.Error())
}

// reasonOf names the kind of a network error without its text.
func reasonOf(err error) string {
	var (
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		alert   tls.AlertError
		record  tls.RecordHeaderError
		errno   syscall.Errno
		timeout net.Error
	)
	switch {
	case errors.As(err, &dns) && outOfFiles(dns):
		return syscall.EMFILE.Error()
	case errors.Is(err, errProhibited):
		return "the host leads to a prohibited address"
	case errors.Is(err, errTarget):
		return "the webhook URL is not allowed any more"
	case errors.Is(err, context.DeadlineExceeded):
		return fsm.ReasonTimeout
	case errors.As(err, &dns):
		return "the host name does not resolve"
	case errors.As(err, &cert):
		return "the TLS certificate is not valid"
	case errors.As(err, &alert), errors.As(err, &record):
		return "the TLS handshake failed"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the connection timed out"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed without an answer"
	}
	return "the request failed"
}
