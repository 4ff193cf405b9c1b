package format

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"

	"reveille/fsm"
)

// StreamHeader names the stream of a delivery's events: its path, percent-encoded as it stands.
const StreamHeader = "Reveille-Stream"

// ReplayHeader is "true" for the replay of a dead letter: the receiver may have taken the events before.
const ReplayHeader = "Reveille-Replay"

const (
	typeJSON = "application/json"
	// typeOctets is the content type of bytes, if nothing else is known of them.
	typeOctets = "application/octet-stream"
)

// push is the format of requests that bring events, in any layout.
type push struct {
	layout
	sign scheme
}

// layout is how events stand in a request. The formats of fsm.ModePush differ only in this.
type layout interface {
	// Most is how many events of a delivery one request brings at most. It depends on the stream, not on the events.
	Most(d Content) int
	// lay returns the body, and adds to the header how to read it. There are no more events than Most.
	lay(h http.Header, d Content) ([]byte, error)
}

// pushes makes the constructor of a format from the constructor of its layout.
func pushes(l func(fsm.Subscription) layout) func(fsm.Subscription, scheme) Format {
	return func(sub fsm.Subscription, s scheme) Format { return push{l(sub), s} }
}

// Request implements Format.
func (f push) Request(d Content) (http.Header, []byte, error) {
	h := http.Header{}
	body, err := f.lay(h, d)
	if err != nil {
		return nil, nil, err
	}
	h.Set(IDHeader, d.ID)
	if d.Delivery.Primary != "" { // a test delivery has no stream
		h.Set(StreamHeader, d.Delivery.Primary)
	}
	if d.Delivery.Replay {
		h.Set(ReplayHeader, "true")
	}
	return h, body, f.sign(h, d, body)
}

// Judge implements Format. A 2xx has taken the events, whatever its body says.
func (push) Judge(a Answer) Verdict {
	if Success(a.Status) {
		return Verdict{Result: fsm.AttemptDone}
	}
	return judgePushFailure(a)
}

// plainJSON is the layout of events as they stand in their stream. The body is one message, or a JSON array of messages
// if the subscription takes several at a time. If the stream is not JSON, the body is its bytes.
type plainJSON struct{ batch int }

// Most implements layout.
func (l plainJSON) Most(Content) int { return l.batch }

func (l plainJSON) lay(h http.Header, d Content) ([]byte, error) {
	b := d.Batch
	body, contentType := b.Events[0], typeJSON
	switch {
	case b.JSON && l.batch > 1:
		body = array(b.Events)
	case !b.JSON:
		contentType = cmp.Or(b.ContentType, typeOctets)
	}
	h.Set("Content-Type", contentType)
	return body, nil
}

// array returns a JSON array of JSON texts.
func array(texts [][]byte) []byte {
	return slices.Concat([]byte("["), bytes.Join(texts, []byte(",")), []byte("]"))
}
