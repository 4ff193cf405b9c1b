package format

import (
	"fmt"
	"net/http"
	"strings"

	"reveille/fsm"
)

// cloudEvent is the layout of one CloudEvent in structured mode (CloudEvents, HTTP binding 3.2, in the JSON format).
type cloudEvent struct{}

// Most implements layout.
func (cloudEvent) Most(Content) int { return 1 }

func (cloudEvent) lay(h http.Header, d Content) ([]byte, error) {
	h.Set("Content-Type", "application/cloudevents+json")
	e, err := envelopeOf(d, 0)
	if err != nil {
		return nil, err
	}
	return e.text()
}

// cloudEventBinary is the layout of one CloudEvent in binary mode (HTTP binding 3.1): the body is its data.
type cloudEventBinary struct{}

// Most implements layout.
func (cloudEventBinary) Most(Content) int { return 1 }

// A request must have a body (CloudEvents webhook spec 2.1). So an event without data has the structured mode.
func (cloudEventBinary) lay(h http.Header, d Content) ([]byte, error) {
	e, err := envelopeOf(d, 0)
	if err != nil || len(e.data) == 0 {
		return cloudEvent{}.lay(h, d)
	}
	for name, text := range e.attributes {
		if name == contentTypeAttribute {
			h.Set("Content-Type", text)
		} else {
			h.Set(attributeHeader+name, percentEncoded(text))
		}
	}
	return e.data, nil
}

// cloudEventBatch is the layout of several CloudEvents in batched mode (HTTP binding 3.3, JSON format 4).
type cloudEventBatch struct{ batch int }

// Most implements layout. Each event repeats the URL and the path of its stream, which may be long. The limit keeps all
// these repetitions within half of fsm.MaxDeliveryBytes.
func (l cloudEventBatch) Most(d Content) int {
	each := 256 + len(d.PublicURL) + 2*len(d.Delivery.Primary)
	return min(l.batch, max(1, fsm.MaxDeliveryBytes/2/each))
}

func (cloudEventBatch) lay(h http.Header, d Content) ([]byte, error) {
	texts := make([][]byte, len(d.Batch.Events))
	for i := range texts {
		e, err := envelopeOf(d, i)
		if err == nil {
			texts[i], err = e.text()
		}
		if err != nil {
			return nil, err
		}
	}
	h.Set("Content-Type", "application/cloudevents-batch+json")
	return array(texts), nil
}

// attributeHeader begins the names of headers that carry attributes (HTTP binding 3.1.3.1).
const attributeHeader = "ce-"

// percentEncoded returns the value of an attribute as a header has it (HTTP binding 3.1.3.2).
func percentEncoded(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
