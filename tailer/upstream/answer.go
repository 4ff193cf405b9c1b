package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// StatusError is an answer of upstream that is neither success nor "no such stream".
type StatusError struct{ Status int }

func (e StatusError) Error() string { return fmt.Sprintf("upstream answered %d", e.Status) }

// AnswerError is an answer of upstream that breaks the protocol.
type AnswerError struct{ What string }

func (e AnswerError) Error() string { return "upstream's answer is wrong: " + e.What }

// ErrNotKept is the cause of an error that says that an offset is not kept any more, although the stream may be there.
var ErrNotKept = errors.New("upstream does not keep the offset any more")

// ErrGone is the cause of an error that says that there is no such stream.
var ErrGone = errors.New("upstream has no such stream")

// event is what the header of an answer to a read says. A cache may not know what is up to date.
func (c *Client) event(h http.Header) (Event, error) {
	offset, err := c.dialectOf(h).next(h.Get(HeaderNextOffset))
	if err != nil {
		return Event{}, fmt.Errorf("GET: %w", err)
	}
	e := Event{Offset: offset, Closed: isTrue(h.Get(HeaderClosed)), Cached: isCached(h)}
	e.UpToDate = isTrue(h.Get(HeaderUpToDate)) && !e.Cached
	if cur := h.Get(HeaderCursor); len(cur) <= cursorLimit {
		e.Cursor = cur
	}
	return e, nil
}

// isCached says whether a cache has kept an answer for a while before it gave it.
func isCached(h http.Header) bool {
	age := h.Get("Age")
	return age != "" && age != "0"
}

func isTrue(s string) bool { return strings.EqualFold(s, "true") }

// withoutURL takes the URL out of an error of the HTTP client: it may hold credentials.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// IsDown says whether an error is one that a server that is down would give: no answer at all, or 5xx.
func IsDown(err error) bool {
	var status StatusError
	var answer AnswerError
	switch {
	case err == nil, errors.Is(err, ErrGone), errors.Is(err, ErrNotKept), errors.As(err, &answer):
		return false
	case errors.As(err, &status):
		return status.Status >= 500
	}
	return true
}

// unconnected says whether there was no connection to ask by: nobody listens, the name leads nowhere, or the
// certificate is wrong.
func unconnected(err error) bool {
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || errors.As(err, &dial) && dial.Op == "dial"
}
