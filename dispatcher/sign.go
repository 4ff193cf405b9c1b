package dispatcher

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"
)

// SignatureHeader carries the signature of a wake (webhook spec, Webhook Signature Verification).
const SignatureHeader = "Webhook-Signature"

// SignatureTolerance is how far the time of a signature may be from a receiver's clock, in either direction.
const SignatureTolerance = 5 * time.Minute

// ErrSignature is the cause of every error that Verify returns.
var ErrSignature = errors.New("the webhook signature is not valid")

// Sign returns the value of the Webhook-Signature header for a body: t=<unix seconds>,sha256=<hex>, an HMAC-SHA256 of
// "<t>.<body>". The key is the bytes of the subscription's secret as it stands, its "whsec_" included.
func Sign(secret string, t time.Time, body []byte) string {
	unix := strconv.FormatInt(t.Unix(), 10)
	return "t=" + unix + ",sha256=" + hex.EncodeToString(signature(secret, unix, body))
}

// Verify checks a Webhook-Signature header against the raw bytes of a body, in constant time. The header's time may be
// at most tolerance before or after now. The error is ErrSignature whatever is wrong.
func Verify(secret, header string, body []byte, now time.Time, tolerance time.Duration) error {
	stamp, rest, found := strings.Cut(header, ",")
	unix, isTime := strings.CutPrefix(stamp, "t=")
	mac, isMAC := strings.CutPrefix(rest, "sha256=")
	if !found || !isTime || !isMAC {
		return ErrSignature
	}
	got, err := hex.DecodeString(mac)
	if err != nil {
		return ErrSignature
	}
	seconds, err := strconv.ParseInt(unix, 10, 64)
	if err != nil || !hmac.Equal(got, signature(secret, unix, body)) {
		return ErrSignature
	}
	if now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return ErrSignature
	}
	return nil
}

func signature(secret, unix string, body []byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(unix))
	h.Write([]byte{'.'})
	h.Write(body)
	return h.Sum(nil)
}
