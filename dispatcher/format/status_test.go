package format

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"reveille/fsm"
)

// TestTheVerdictOnEveryAnswer holds the whole policy of status codes, bodies and Retry-After.
func TestTheVerdictOnEveryAnswer(t *testing.T) {
	done, accepted := Verdict{Result: fsm.AttemptDone}, Verdict{Result: fsm.AttemptAccepted}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, tc := range []struct {
		name       string
		status     int
		retryAfter string
		body       string
		want       Verdict
	}{
		{"200 with done is done", 200, "", `{"done":true}`, done},
		{"done among other fields is done", 200, "", ` {"a":[{}], "done" : true, "b":null} `, done},
		{"any 2xx may say done", 299, "", `{"done":true}`, done},
		{"a done of false is a plain 2xx", 200, "", `{"done":false}`, accepted},
		{"a done that is a string is a plain 2xx", 200, "", `{"done":"true"}`, accepted},
		{"a done that is a number is a plain 2xx", 200, "", `{"done":1}`, accepted},
		{"a Done in capitals is a plain 2xx", 200, "", `{"Done":true,"DONE":true}`, accepted},
		{"a done further down is a plain 2xx", 200, "", `{"result":{"done":true}}`, accepted},
		{"JSON that is no object is a plain 2xx", 200, "", `[{"done":true}]`, accepted},
		{"null is a plain 2xx", 200, "", `null`, accepted},
		{"JSON with something after it is a plain 2xx", 200, "", `{"done":true} ok`, accepted},
		{"JSON cut short is a plain 2xx", 200, "", `{"done":true`, accepted},
		{"text is a plain 2xx", 200, "", `OK`, accepted},
		{"no body is a plain 2xx", 204, "", ``, accepted},
		{"201 is a plain 2xx", 201, "", ``, accepted},
		{"202 is a plain 2xx", 202, "", `{}`, accepted},
		{"a switch of protocols failed", 101, "", ``, Verdict{Class: ClassInvalid, Reason: "status 101"}},
		{
			"a permanent redirect failed", 308, "", ``,
			Verdict{Class: ClassRedirect, Reason: "status 308 (redirects are not followed)"},
		},
		{
			"a temporary redirect failed", 302, "", `{"done":true}`,
			Verdict{Class: ClassRedirect, Reason: "status 302 (redirects are not followed)"},
		},
		{
			"not modified failed", 304, "", ``,
			Verdict{Class: ClassRedirect, Reason: "status 304 (redirects are not followed)"},
		},
		{"400 failed", 400, "", `{"done":true}`, Verdict{Class: ClassClientError, Reason: "status 400"}},
		{"404 failed", 404, "", ``, Verdict{Class: ClassClientError, Reason: "status 404"}},
		{
			"415 failed, and says why", 415, "", ``,
			Verdict{Class: ClassClientError, Reason: "status 415 (the endpoint does not understand the format)"},
		},
		{"410 retires", 410, "", ``, Verdict{Result: fsm.AttemptRetired, Class: ClassGone, Reason: "status 410"}},
		{
			"410 retires whatever Retry-After says", 410, "5", ``,
			Verdict{Result: fsm.AttemptRetired, Class: ClassGone, Reason: "status 410"},
		},
		{
			"500 failed, and its Retry-After does not count", 500, "5", ``,
			Verdict{Class: ClassServerError, Reason: "status 500"},
		},
		{"a status beyond 599 failed", 999, "", ``, Verdict{Class: ClassInvalid, Reason: "status 999"}},
		{
			"429 waits as long as it says", 429, "7", ``,
			Verdict{Class: ClassRateLimited, Reason: "status 429", RetryAfter: 7 * time.Second},
		},
		{
			"503 waits as long as it says", 503, " 7 ", ``,
			Verdict{Class: ClassUnavailable, Reason: "status 503", RetryAfter: 7 * time.Second},
		},
		{
			"502 waits as long as it says", 502, "7", ``,
			Verdict{Class: ClassServerError, Reason: "status 502", RetryAfter: 7 * time.Second},
		},
		{
			"504 waits as long as it says", 504, "7", ``,
			Verdict{Class: ClassServerError, Reason: "status 504", RetryAfter: 7 * time.Second},
		},
		{
			"429 without Retry-After follows the schedule", 429, "", ``,
			Verdict{Class: ClassRateLimited, Reason: "status 429"},
		},
		{
			"429 waits until the date it says", 429, in(90 * time.Second), ``,
			Verdict{Class: ClassRateLimited, Reason: "status 429", RetryAfter: 90 * time.Second},
		},
		{
			"a date in the past is none", 503, in(-time.Second), ``,
			Verdict{Class: ClassUnavailable, Reason: "status 503"},
		},
		{
			"a date far ahead is an hour", 503, in(48 * time.Hour), ``,
			Verdict{Class: ClassUnavailable, Reason: "status 503", RetryAfter: fsm.MaxRetryAfter},
		},
		{
			"an hour is the most", 429, "3601", ``,
			Verdict{Class: ClassRateLimited, Reason: "status 429", RetryAfter: fsm.MaxRetryAfter},
		},
		{
			"more than a number can hold is an hour", 429, strings.Repeat("9", 30), ``,
			Verdict{Class: ClassRateLimited, Reason: "status 429", RetryAfter: fsm.MaxRetryAfter},
		},
		{"negative seconds are none", 429, "-5", ``, Verdict{Class: ClassRateLimited, Reason: "status 429"}},
		{"fractions are none", 429, "1.5", ``, Verdict{Class: ClassRateLimited, Reason: "status 429"}},
		{"garbage is none", 429, "soon", ``, Verdict{Class: ClassRateLimited, Reason: "status 429"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{}
			if tc.retryAfter != "" {
				h.Set("Retry-After", tc.retryAfter)
			}
			got := wakeFormat(t).Judge(Answer{Status: tc.status, Header: h, Body: []byte(tc.body), At: now})
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
