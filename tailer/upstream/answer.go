package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"

	"reveille/fsm"
)

// AnswerError is an answer of upstream that is of no use. What says how it breaks the protocol. If What is empty,
// Status means neither success nor "no such stream".
type AnswerError struct {
	Status int
	What   string
}

func (e AnswerError) Error() string {
	if e.What != "" {
		return "upstream's answer is wrong: " + e.What
	}
	return fmt.Sprintf("upstream answered %d", e.Status)
}

// Causes of errors that say something about a stream.
var (
	// ErrGone says that there is no such stream.
	ErrGone = fsm.ErrNoStream
	// ErrNotKept says that upstream no longer keeps an offset, although the stream may exist.
	ErrNotKept = fsm.ErrNotKept
	// errGoneThere is ErrGone after a 410 to a read. Some servers also answer 410 for an offset that they do not keep.
	errGoneThere = fmt.Errorf("%w: 410", ErrGone)
)

// errNoAnswer is the cause if a request gets no answer.
var errNoAnswer = errors.New("nothing answers")

// IsDown says whether an error is one that a server that is down would give: no answer at all, or 5xx.
func IsDown(err error) bool {
	var answer AnswerError
	if errors.As(err, &answer) {
		return answer.Status >= 500
	}
	return err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrNotKept) && !errors.Is(err, fsm.ErrPath)
}

// isOurs says whether the cause of an error is in Reveille, so that it says nothing about upstream. Either the path
// must not be asked for, or there was no file for the connection.
func isOurs(err error) bool {
	return errors.Is(err, fsm.ErrPath) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// unconnected says whether there was no connection for the request. No server listens, the name leads nowhere, or the
// certificate is wrong.
func unconnected(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || errors.As(err, &dial) && dial.Op == "dial"
}

// withoutURL removes the URL from an error of the HTTP client. The URL may hold credentials.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
