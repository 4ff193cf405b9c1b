package dispatcher

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

// TestWhatAnEndpointRepeatsOfItsSubscriptionIsMasked holds that no secret of a subscription is kept from an answer.
func TestWhatAnEndpointRepeatsOfItsSubscriptionIsMasked(t *testing.T) {
	sub := fsm.Subscription{
		Secret: "whsec_0123456789", Previous: fsm.PreviousSecret{Secret: "whsec_before_that"},
		Authorization: fsm.Authorization{Secret: "Bearer token-of-somebody"},
		Webhook:       "https://example.com/hook/part-of-the-path?key=key%2Din-the-url&v=22",
		Headers: map[string]string{
			"X-Short": "yes", "X-Pin": "p4ss-77", "X-Four": "q7Zx", "X-One": "1", "X-None": "",
			"X-Key": "key-of-somebody", "X-Longer": "key-of-somebody else", "X-Odd": `c2V+jc"m/V0&==`,
		},
	}
	for text, want := range map[string]string{
		"whatever, 22 eyes, yesterday or yes_":             "whatever, 22 eyes, yesterday or yes_",
		"yes, whatever":                                    "[masked], whatever",
		"HTTP/1.1 says 11, 1":                              "HTTP/[masked].[masked] says 11, [masked]",
		"X-Pin: p4ss-77":                                   "X-Pin: [masked]",
		"X-Pin=xp4ss%2d77x":                                "X-Pin=x[masked]x",
		"cut within p4ss":                                  "cut within [masked]",
		"aq7Zxb":                                           "a[masked]b",
		"Cannot POST /hook/part-of-the-path":               "Cannot POST /hook/[masked]",
		"it carried the-token-of-a-wake":                   "it carried [masked]",
		"POST /hook?key=key%2Din-the-url&v=22":             "POST /hook?key=[masked]&v=22",
		"got whsec_0123456789 and whsec_before_that":       "got [masked] and [masked]",
		`{"authorization":"Bearer token-of-somebody"}`:     `{"authorization":"[masked]"}`,
		"no such token: token-of-somebody":                 "no such token: [masked]",
		"X-Key: key-of-somebody":                           "X-Key: [masked]",
		"cut within key-of-so":                             "cut within [masked]",
		"cut within Bearer token-of-s":                     "cut within [masked]",
		"cut too early to tell: tok":                       "cut too early to tell: tok",
		"the longer: key-of-somebody else":                 "the longer: [masked]",
		"?key=key-of-somebody+else&b":                      "?key=[masked]&b",
		`as it is: c2V+jc"m/V0&==`:                         "as it is: [masked]",
		"/hook?key=c2V%2Bjc%22m%2FV0%26%3D%3D HTTP":        "/hook?key=[masked] HTTP",
		"/hook?key=c2V%2bjc%22m/V0%26%3d%3d&b=1":           "/hook?key=[masked]&b=[masked]",
		`{"X-Odd":"c2V+jc\"m\/V0&=="}`:                     `{"X-Odd":"[masked]"}`,
		`{"X-Odd":"c2V\u002Bjc\u0022m\/V0\u0026=="}`:       `{"X-Odd":"[masked]"}`,
		"<b>c2V+jc&quot;m/V0&amp;==</b>":                   "<b>[masked]</b>",
		"<b>c2V&#43;jc&#34;m/V0&amp;==</b>":                "<b>[masked]</b>",
		"cut within c2V%2Bjc%22m%2FV0%2":                   "cut within [masked]",
		`cut within c2V+jc\"m\/V0\u00`:                     "cut within [masked]",
		`not one: \`:                                       `not one: \`,
		`twice: key-of-somebodykey-of-somebody`:            `twice: [masked][masked]`,
		`one over the other: Bearer token-of-somebodyq7Zx`: `one over the other: [masked][masked]`,
		`quoted: \\u0071\u0037Zx`:                          `quoted: \[masked]`,
	} {
		if got := mask(sub, text, "the-token-of-a-wake"); got != want {
			t.Errorf("%q is kept as %q, want %q", text, got, want)
		}
	}
}

// TestTheTimeOfAMaskGrowsWithTheText holds that a text that is nearly a secret everywhere costs no more than another:
// in each encoding, and with as many secrets as a subscription may have.
func TestTheTimeOfAMaskGrowsWithTheText(t *testing.T) {
	sub := fsm.Subscription{Headers: map[string]string{}}
	for i := range 32 {
		sub.Headers[fmt.Sprint("X-", i)] = strings.Repeat("a", 2000+i) + "b"
	}
	for _, part := range []string{"a", "%61", `\u0061`, "&#97;", "a%", `a\`, "a&", "a+"} {
		text := strings.Repeat(part, 1<<20/len(part))
		began := time.Now()
		if got := mask(sub, text); !strings.HasPrefix(got, part) {
			t.Errorf("%q is kept as %.20q", part, got)
		}
		// For each place of the text and each secret, the common part has 2,000 bytes: 64 billion steps.
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a MiB of %q took %s", part, took)
		}
	}
}

// TestWhatARequestCarriesIsMasked holds that an endpoint that repeats a whole request puts no token and no signature
// into an answer that is kept.
func TestWhatARequestCarriesIsMasked(t *testing.T) {
	a := &attempt{request: &http.Request{Header: http.Header{
		"Webhook-Signature": {"v1,c2lnbmF0dXJlIG9mIGEgcHVzaA== v1,YW5vdGhlciBzaWduYXR1cmU="},
		"Webhook-Id":        {"evt_76543210"},
		"X-Other-Signature": {"t=1790000000,sha256=0123456789abcdef0123"},
	}}}
	a.content.Token = "the-token-of-a-wake"
	for text, want := range map[string]string{
		`{"token":"the-token-of-a-wake"}`:                        `{"token":"[masked]"}`,
		"webhook-signature: v1,c2lnbmF0dXJlIG9mIGEgcHVzaA== and": "webhook-signature: v1,[masked] and",
		"another: YW5vdGhlciBzaWduYXR1cmU=":                      "another: [masked]",
		"t=1790000000,sha256=0123456789abcdef0123, evt_76543210": "t=1790000000,sha256=[masked], evt_76543210",
	} {
		if got := mask(a.sub, text, a.carried()...); got != want {
			t.Errorf("%q is kept as %q, want %q", text, got, want)
		}
	}
}
