package format

import (
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"reveille/fsm"
)

// The headers of Standard Webhooks (its specification, Webhook Headers). The signature is in SignatureHeader, in
// another form: one or more of "v1,<base64>", with a space between them.
const (
	IDHeader        = "Webhook-Id"
	TimestampHeader = "Webhook-Timestamp"
)

// StandardPrefix begins the signatures that Reveille makes; v1a, begins asymmetric ones.
const StandardPrefix = "v1,"

var errSecret = errors.New("the secret is not " + fsm.SecretPrefix + "<base64>, as Standard Webhooks has it")

// standardKey returns the key that a secret stands for.
func standardKey(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, fsm.SecretPrefix))
	if err != nil || len(key) == 0 {
		return nil, errSecret
	}
	return key, nil
}

// signStandardWebhooks signs as Standard Webhooks says. The id is the same for all attempts: by it, receivers recognize
// a delivery that they had before.
func signStandardWebhooks(h http.Header, d Content, body []byte) error {
	id, unix := d.ID, strconv.FormatInt(d.At.Unix(), 10)
	secrets := []string{d.Secret}
	if d.Previous != "" {
		secrets = append(secrets, d.Previous)
	}
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		key, err := standardKey(secret)
		if err != nil {
			return err
		}
		signatures[i] = StandardPrefix + base64.StdEncoding.EncodeToString(signature(key, id+"."+unix, body))
	}
	h.Set(IDHeader, id)
	h.Set(TimestampHeader, unix)
	h.Set(SignatureHeader, strings.Join(signatures, " "))
	return nil
}

// ExamineStandard is Examine for the three headers of Standard Webhooks. One right signature among several is enough:
// during a rotation, two secrets sign.
func ExamineStandard(
	secret, id, timestamp, header string, body []byte, now time.Time, tolerance time.Duration,
) (e Examination) {
	key, err := standardKey(secret)
	if err != nil {
		e.Form = err
		return e
	}
	if id == "" || strings.Contains(id, ".") {
		e.Form = fmt.Errorf("%s is empty or has a dot", strings.ToLower(IDHeader))
		return e
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		e.Form = fmt.Errorf("%s is not a number of seconds", strings.ToLower(TimestampHeader))
		return e
	}
	signatures := strings.Fields(header)
	if !slices.ContainsFunc(signatures, isSymmetric) {
		e.Form = fmt.Errorf("%s is not %s<base64>", strings.ToLower(SignatureHeader), StandardPrefix)
		return e
	}
	want := signature(key, id+"."+timestamp, body)
	for _, s := range signatures {
		got, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, StandardPrefix))
		e.Right = e.Right || err == nil && isSymmetric(s) && hmac.Equal(got, want)
	}
	e.Time, e.Age = timestamp, now.Sub(time.Unix(seconds, 0))
	e.InTime = e.Age.Abs() <= tolerance
	return e
}

func isSymmetric(signature string) bool { return strings.HasPrefix(signature, StandardPrefix) }
