package format

import (
	"errors"
	"net/http"
	"strconv"
)

// outbox is the format of an event that was handed over for this target. The body is its payload.
type outbox struct{ sign scheme }

// errNoPayload says that an event of an outbox stream was not handed over.
var errNoPayload = errors.New("the event has no payload")

// Most implements Format.
func (outbox) Most(Content) int { return 1 }

// Request implements Format (delivery semantics, Idempotency).
func (f outbox) Request(d Content) (http.Header, []byte, error) {
	e := d.Event
	if len(e.Payload) == 0 {
		return nil, nil, errNoPayload
	}
	h := http.Header{}
	for name, value := range map[string]string{
		"Content-Type": typeJSON, IDHeader: d.ID, "X-Webhook-ID": e.ID, "X-Idempotency-Key": e.Key,
		"X-Webhook-Event": e.Type, "X-Webhook-Provider": e.Provider,
		"X-Webhook-Attempt":   strconv.Itoa(d.Delivery.Attempt),
		"X-Webhook-Timestamp": strconv.FormatInt(d.At.UnixMilli(), 10),
	} {
		if value != "" {
			h.Set(name, percentEncoded(value))
		}
	}
	if d.Delivery.Replay {
		h.Set(ReplayHeader, "true")
	}
	body := []byte(e.Payload)
	return h, body, f.sign(h, d, body)
}

// Judge implements Format.
func (outbox) Judge(a Answer) Verdict { return push{}.Judge(a) }
