package format

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// SignatureHeader carries the signature of a wake (webhook spec, Webhook Signature Verification).
const SignatureHeader = "Webhook-Signature"

// NewSignatureHeader carries the signature by the new secret, while the previous secret signs as well.
const NewSignatureHeader = "Webhook-Signature-New"

// SignatureTolerance is how far the time of a signature may be from a receiver's clock, in either direction.
const SignatureTolerance = 5 * time.Minute

// signHMAC signs as the webhook spec says. The spec knows one signature in its header, and readers of it refuse more.
// So while the previous secret signs, the header has its signature, for receivers that know no other secret.
func signHMAC(h http.Header, d Content, body []byte) error {
	h.Set(SignatureHeader, Sign(cmp.Or(d.Previous, d.Secret), d.At, body))
	if d.Previous != "" {
		h.Set(NewSignatureHeader, Sign(d.Secret, d.At, body))
	}
	return nil
}

// Sign returns the value of the Webhook-Signature header for a body: t=<unix seconds>,sha256=<hex>, an HMAC-SHA256 of
// "<t>.<body>". The key is the bytes of the subscription's secret as it stands, its "whsec_" included.
func Sign(secret string, t time.Time, body []byte) string {
	unix := strconv.FormatInt(t.Unix(), 10)
	return "t=" + unix + ",sha256=" + hex.EncodeToString(signature([]byte(secret), unix, body))
}

// Examination says which checks a signature passes, for developers who look for the reason of a refusal. A receiver of
// wakes does not disclose it.
type Examination struct {
	// Form is the fault in the header's form; nil if there is none. The other fields mean something only if it is nil.
	Form error
	// Time is the header's time, as it stands there. Age is how long ago that was; negative if it is yet to come.
	Time string
	Age  time.Duration
	// InTime says whether Age is within the tolerance, Right whether the HMAC fits the body.
	InTime, Right bool
}

// OK says whether all checks passed.
func (e Examination) OK() bool { return e.Form == nil && e.InTime && e.Right }

// Examine checks a Webhook-Signature header against the raw bytes of a body, in constant time. The header's time may be
// at most tolerance before or after now.
func Examine(secret, header string, body []byte, now time.Time, tolerance time.Duration) (e Examination) {
	stamp, rest, found := strings.Cut(header, ",")
	unix, isTime := strings.CutPrefix(stamp, "t=")
	mac, isMAC := strings.CutPrefix(rest, "sha256=")
	if !found || !isTime || !isMAC {
		e.Form = errors.New("it is not t=<unix seconds>,sha256=<hex>")
		return e
	}
	got, err := hex.DecodeString(mac)
	if err != nil || len(got) != sha256.Size {
		e.Form = fmt.Errorf("sha256= is not followed by %d hexadecimal digits", 2*sha256.Size)
		return e
	}
	seconds, err := strconv.ParseInt(unix, 10, 64)
	if err != nil {
		e.Form = errors.New("t= is not followed by a number of seconds")
		return e
	}
	e.Time, e.Age = unix, now.Sub(time.Unix(seconds, 0))
	e.InTime = e.Age.Abs() <= tolerance
	e.Right = hmac.Equal(got, signature([]byte(secret), unix, body))
	return e
}

// signature is the HMAC-SHA256 of "<head>.<body>".
func signature(key []byte, head string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(head))
	h.Write([]byte{'.'})
	h.Write(body)
	return h.Sum(nil)
}
