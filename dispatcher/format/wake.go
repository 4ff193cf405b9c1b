package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"reveille/fsm"
)

// wake is the format of the webhook spec: a call to read the streams and to report by callbacks.
type wake struct{ sign scheme }

// payload is the body of a wake, its fields in the order of the webhook spec's example (Wake-up Notification).
type payload struct {
	ConsumerID    string          `json:"consumer_id"`
	Epoch         int64           `json:"epoch"`
	WakeID        string          `json:"wake_id"`
	PrimaryStream string          `json:"primary_stream"`
	Streams       []payloadStream `json:"streams"`
	TriggeredBy   []string        `json:"triggered_by"`
	Callback      string          `json:"callback"`
	Token         string          `json:"token"`
}

type payloadStream struct {
	Path   string `json:"path"`
	Offset string `json:"offset"`
}

// Most implements Format: a wake brings no events.
func (wake) Most(Content) int { return 0 }

// Request implements Format.
func (f wake) Request(d Content) (http.Header, []byte, error) {
	body, err := encodeWake(d.Delivery, d.PublicURL, d.Token)
	if err != nil {
		return nil, nil, err
	}
	h := http.Header{"Content-Type": {"application/json"}}
	return h, body, f.sign(h, d, body)
}

// Judge implements Format. A 2xx is done if its body is a JSON object with "done": true, otherwise accepted (webhook
// spec, Synchronous Done).
func (wake) Judge(a Answer) Verdict {
	switch {
	case !Success(a.Status):
		return judgeFailure(a)
	case saysDone(a.Body):
		return Verdict{Result: fsm.AttemptDone}
	}
	return Verdict{Result: fsm.AttemptAccepted}
}

// encodeWake returns the payload. A consumer ID is percent-encoded already, so it goes into the callback URL as it
// stands.
func encodeWake(w fsm.Delivery, publicURL, token string) ([]byte, error) {
	p := payload{
		ConsumerID:    w.Consumer,
		Epoch:         w.Epoch,
		WakeID:        w.WakeID,
		PrimaryStream: w.Primary,
		Streams:       make([]payloadStream, len(w.Streams)),
		TriggeredBy:   w.Triggered(),
		Callback:      publicURL + "/callback/" + w.Consumer,
		Token:         token,
	}
	for i, s := range w.Streams {
		p.Streams[i] = payloadStream{Path: s.Path, Offset: s.Acked.Value()}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("encode the wake: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// saysDone says whether the body has the boolean true under the exact name "done".
func saysDone(body []byte) bool {
	if string(bytes.TrimSuffix(body, []byte("\n"))) == `{"done":true}` { // as nearly all are written
		return true
	}
	var fields map[string]json.RawMessage
	return json.Unmarshal(body, &fields) == nil && string(fields["done"]) == "true"
}
