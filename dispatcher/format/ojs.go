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

// The headers of an Open Job Spec webhook: its signature, the time of it (OJS Webhook Delivery 8.1), and the type of
// its event (5.3).
const (
	OJSSignatureHeader = "X-OJS-Signature"
	OJSTimestampHeader = "X-OJS-Timestamp"
	OJSTypeHeader      = "X-OJS-Event-Type"
)

// OJSPrefix begins each signature of OJSSignatureHeader.
const OJSPrefix = "sha256="

// ojs is the layout of one event as an Open Job Spec webhook (OJS Webhook Delivery 5.3). It includes the signature of
// Open Job Spec. The scheme of the subscription adds its own signature.
type ojs struct{ subscription string }

// Most implements layout.
func (ojs) Most(Content) int { return 1 }

func (l ojs) lay(h http.Header, d Content) ([]byte, error) {
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

// ojsSignature signs with the characters of the secret as they stand, "whsec_" included (8.1, and the code in 14.4 and
// 14.5).
func ojsSignature(secret, unix string, body []byte) string {
	return OJSPrefix + hex.EncodeToString(signature([]byte(secret), unix, body))
}

// ojsEvent returns the event of a delivery and its type. An event of Open Job Spec stays as it is. Around any other
// event, it makes a new one, like a CloudEvent. Open Job Spec demands a time: an event without one gets the time of its
// wake, or of its request if there is no wake.
func ojsEvent(d Content) (text []byte, kind string, err error) {
	members := d.members(0)
	if kind, ok := readOJS(members); ok {
		return d.Batch.Events[0], kind, nil
	}
	e := envelopeFor(d, 0, members)
	if _, has := e.attributes["time"]; !has {
		at := d.Delivery.WokeAt
		if at.IsZero() {
			at = d.At
		}
		e.attributes["time"] = types.FormatTime(at)
	}
	text, err = e.text()
	return text, e.attributes["type"], err
}

// readOJS returns the type of an event from the members of its JSON, if it is an event of Open Job Spec. Then all
// members are there that the spec demands of every event (OJS Events 2.2), and the optional ones are valid.
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
		meansJSON(cmp.Or(attributes[contentTypeAttribute], typeJSON))
}

// ExamineOJS is Examine for the two headers of Open Job Spec. One right signature among several is enough: during a
// rotation, two secrets sign.
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
