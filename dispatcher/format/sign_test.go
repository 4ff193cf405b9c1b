package format

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSignature(t *testing.T) {
	at := time.Unix(1704067200, 0)
	body := []byte(`{"epoch":7}`)
	header := Sign("whsec_abc123", at, body)
	// printf '1704067200.{"epoch":7}' | openssl dgst -sha256 -hmac whsec_abc123
	const want = "t=1704067200,sha256=95252b658c25de3b811aa26eb2c2067f17e6f4f44e2d66cd17919f8844da1756"
	if header != want {
		t.Errorf("got %s, want %s", header, want)
	}
	for _, tc := range []struct {
		name   string
		secret string
		header string
		body   string
		now    time.Time
		ok     bool
	}{
		{"the signature of this body is valid", "whsec_abc123", header, string(body), at, true},
		{"five minutes late is still in time", "whsec_abc123", header, string(body), at.Add(5 * time.Minute), true},
		{"five minutes early is still in time", "whsec_abc123", header, string(body), at.Add(-5 * time.Minute), true},
		{"later than that is not", "whsec_abc123", header, string(body), at.Add(5*time.Minute + time.Second), false},
		{"earlier than that is not", "whsec_abc123", header, string(body), at.Add(-5*time.Minute - time.Second), false},
		{"another body is refused", "whsec_abc123", header, `{"epoch":8}`, at, false},
		{"another secret is refused", "whsec_abc124", header, string(body), at, false},
		{"the secret counts with its prefix", "abc123", header, string(body), at, false},
		{
			"another time is refused", "whsec_abc123", strings.Replace(header, "1704067200", "1704067201", 1),
			string(body), at,
			false,
		},
		{"no header is refused", "whsec_abc123", "", string(body), at, false},
		{
			"a header without a time is refused", "whsec_abc123", header[strings.Index(header, "sha256"):],
			string(body), at,
			false,
		},
		{
			"a signature that is not hexadecimal is refused", "whsec_abc123", "t=1704067200,sha256=zz", string(body),
			at, false,
		},
		{"a signature cut short is refused", "whsec_abc123", header[:len(header)-2], string(body), at, false},
		{"a time that is no number is refused", "whsec_abc123", "t=x,sha256=00", string(body), at, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := Examine(tc.secret, tc.header, []byte(tc.body), tc.now, SignatureTolerance)
			if e.OK() != tc.ok {
				t.Errorf("got %+v", e)
			}
		})
	}
}

// TestBothSecretsSignWhileThereIsAPreviousOne holds that a receiver with the previous secret still finds its signature
// in the header of the webhook spec. A receiver with the new secret finds the new signature beside it.
func TestBothSecretsSignWhileThereIsAPreviousOne(t *testing.T) {
	at, body := time.Unix(1704067200, 0), []byte(`{"epoch":7}`)
	// Keys that both schemes take.
	const first, second = "whsec_Zmlyc3Q=", "whsec_c2Vjb25k"
	hmac := func(secret string) string { return Sign(secret, at, body) }
	standard := func(secret string) string {
		h := http.Header{}
		if err := signStandardWebhooks(h, Content{ID: "w_1", Secret: secret, At: at}, body); err != nil {
			t.Fatal(err)
		}
		return h.Get(SignatureHeader)
	}
	for _, tc := range []struct {
		sign     scheme
		previous string
		want     http.Header
	}{
		{signHMAC, "", http.Header{SignatureHeader: {hmac(second)}}},
		{signHMAC, first, http.Header{SignatureHeader: {hmac(first)}, NewSignatureHeader: {hmac(second)}}},
		{signStandardWebhooks, "", http.Header{SignatureHeader: {standard(second)}}},
		{signStandardWebhooks, first, http.Header{SignatureHeader: {standard(second) + " " + standard(first)}}},
	} {
		h := http.Header{}
		if err := tc.sign(h, Content{ID: "w_1", Secret: second, Previous: tc.previous, At: at}, body); err != nil {
			t.Fatal(err)
		}
		h.Del(IDHeader)
		h.Del(TimestampHeader)
		if !maps.EqualFunc(h, tc.want, slices.Equal) {
			t.Errorf("with the previous secret %q it is %v, want %v", tc.previous, h, tc.want)
		}
	}
}
