package format

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// The headers of the webhooks of Open Job Spec that say who has sent a request, and when (OJS Webhook Delivery 8.1),
// and of what type its event is (5.3).
const (
	OJSSignatureHeader = "X-OJS-Signature"
	OJSTimestampHeader = "X-OJS-Timestamp"
	OJSTypeHeader      = "X-OJS-Event-Type"
)

// OJSPrefix begins each signature of OJSSignatureHeader.
const OJSPrefix = "sha256="

// ojs is the layout of one event as the webhooks of Open Job Spec have it (OJS Webhook Delivery 5.3). Their signature
// is a part of it: it comes beside that of the scheme which the subscription asks for.
type ojs struct{ subscription string }

// Most implements layout.
func (ojs) Most(Delivery) int { return 1 }

func (l ojs) lay(h http.Header, d Delivery) ([]byte, error) {
	body, kind, err := ojsEvent(d)
	if err != nil {
		return nil, err
	}
	unix := strconv.FormatInt(d.At.Unix(), 10)
	signatures := ojsSignature(d.Secret, unix, body)
	if d.Previous != "" {
		signatures += "," + ojsSignature(d.Previous, unix, body)
	}
	h.Set("Content-Type", typeJSON)
	h.Set("User-Agent", "OJS-Webhook/1.0") // the program's own name follows
	h.Set(OJSTypeHeader, percentEncoded(kind))
	h.Set("X-OJS-Delivery-ID", d.ID)
	h.Set("X-OJS-Subscription-ID", l.subscription)
	h.Set(OJSTimestampHeader, unix)
	h.Set(OJSSignatureHeader, signatures)
	return body, nil
}

// ojsSignature signs with the characters of the secret as they stand, its "whsec_" included (8.1, and the code of 14.4
// and 14.5).
func ojsSignature(secret, unix string, body []byte) string {
	return OJSPrefix + hex.EncodeToString(signature([]byte(secret), unix, body))
}

// ojsEvent returns the event of a delivery and its type: the event itself if it is one of Open Job Spec, otherwise one
// that is made for it, as a CloudEvent is made. That spec wants a time, so one without gets that of its delivery.
func ojsEvent(d Delivery) (text []byte, kind string, err error) {
	members := d.members(0)
	if kind, ok := readOJS(members); ok {
		return d.Batch.Events[0], kind, nil
	}
	e := envelopeFor(d, 0, members)
	if _, has := e.attributes["time"]; !has {
		at := d.Wake.WokeAt
		if at.IsZero() {
			at = d.At
		}
		e.attributes["time"] = types.FormatTime(at)
	}
	text, err = e.text()
	return text, e.attributes["type"], err
}

// readOJS returns the type of what stands in a stream if it is an event of Open Job Spec, by the members of its JSON:
// it has all that the spec demands of every event (OJS Events 2.2), and what it may have is what it should be.
func readOJS(members map[string]json.RawMessage) (kind string, ok bool) {
	attributes := map[string]string{}
	for _, name := range []string{"specversion", "id", "type", "source", "time"} {
		if attributes[name], ok = attribute(name, members[name]); !ok {
			return "", false
		}
	}
	for _, name := range []string{"subject", contentTypeAttribute} {
		value := members[name]
		if len(value) == 0 || isNull(value) {
			continue
		}
		if attributes[name], ok = attribute(name, value); !ok {
			return "", false
		}
	}
	_, err := checked(attributes)
	return attributes["type"], err == nil && attributes["specversion"] == event.CloudEventsVersionV1 &&
		isJSON(cmp.Or(attributes[contentTypeAttribute], typeJSON))
}

// ExamineOJS is Examine for the two headers of Open Job Spec. One right signature among several is enough, as while a
// secret is changed.
func ExamineOJS(
	secret, timestamp, header string, body []byte, now time.Time, tolerance time.Duration,
) (e Examination) {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		e.Form = fmt.Errorf("%s is not a number of seconds", OJSTimestampHeader)
		return e
	}
	want := signature([]byte(secret), timestamp, body)
	for part := range strings.SplitSeq(header, ",") {
		digits, found := strings.CutPrefix(strings.TrimSpace(part), OJSPrefix)
		got, err := hex.DecodeString(digits)
		if !found || err != nil || len(got) != sha256.Size {
			return Examination{Form: fmt.Errorf("it is not %s and %d hexadecimal digits, or several of them with "+
				"commas between", OJSPrefix, 2*sha256.Size)}
		}
		e.Right = hmac.Equal(got, want) || e.Right
	}
	e.Time, e.Age = timestamp, now.Sub(time.Unix(seconds, 0))
	e.InTime = e.Age.Abs() <= tolerance
	return e
}
