package format

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"

	"reveille/fsm"
)

// StreamHeader names the stream that the events of a delivery are of: its path, percent-encoded as it stands.
const StreamHeader = "Reveille-Stream"

// ReplayHeader is "true" if a dead letter is replayed: the receiver may have taken the events before.
const ReplayHeader = "Reveille-Replay"

// plainJSON is the format of events as they stand in their stream: one message, a JSON array of messages if the
// subscription takes several at a time, or the bytes of a stream that is not JSON.
type plainJSON struct {
	several bool
	sign    scheme
}

// Request implements Format.
func (f plainJSON) Request(d Delivery) (http.Header, []byte, error) {
	b := d.Batch
	body, contentType := b.Events[0], "application/json"
	switch {
	case b.JSON && f.several:
		body = slices.Concat([]byte("["), bytes.Join(b.Events, []byte(",")), []byte("]"))
	case !b.JSON:
		contentType = cmp.Or(b.ContentType, "application/octet-stream")
	}
	h := http.Header{"Content-Type": {contentType}}
	h.Set(IDHeader, d.ID)
	if d.Wake.Primary != "" { // a test delivery is of no stream
		h.Set(StreamHeader, d.Wake.Primary)
	}
	if d.Wake.Replay {
		h.Set(ReplayHeader, "true")
	}
	return h, body, f.sign(h, d, body)
}

// Judge implements Format. A 2xx has taken the events, whatever its body says.
func (plainJSON) Judge(a Answer) Verdict {
	if Success(a.Status) {
		return Verdict{Result: fsm.AttemptDone}
	}
	return judgePushFailure(a)
}
