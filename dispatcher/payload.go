package dispatcher

import (
	"bytes"
	"encoding/json"
	"fmt"

	"reveille/fsm"
)

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

// EncodePayload returns the body of one attempt. publicURL has no slash at its end. A consumer ID is percent-encoded
// already and goes into the callback URL as it stands.
func EncodePayload(w fsm.Wake, publicURL, token string) ([]byte, error) {
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
