package dispatcher

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"reveille/fsm"
)

func TestAnswers(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, tc := range []struct {
		name       string
		status     int
		retryAfter string
		body       string
		want       answer
	}{
		{"200 with done is done", 200, "", `{"done":true}`, answer{result: done}},
		{"done among other fields is done", 200, "", ` {"a":[{}], "done" : true, "b":null} `, answer{result: done}},
		{"any 2xx may say done", 299, "", `{"done":true}`, answer{result: done}},
		{"a done of false is a plain 2xx", 200, "", `{"done":false}`, answer{result: accepted}},
		{"a done that is a string is a plain 2xx", 200, "", `{"done":"true"}`, answer{result: accepted}},
		{"a done that is a number is a plain 2xx", 200, "", `{"done":1}`, answer{result: accepted}},
		{"a Done in capitals is a plain 2xx", 200, "", `{"Done":true,"DONE":true}`, answer{result: accepted}},
		{"a done further down is a plain 2xx", 200, "", `{"result":{"done":true}}`, answer{result: accepted}},
		{"JSON that is no object is a plain 2xx", 200, "", `[{"done":true}]`, answer{result: accepted}},
		{"null is a plain 2xx", 200, "", `null`, answer{result: accepted}},
		{"JSON with something after it is a plain 2xx", 200, "", `{"done":true} ok`, answer{result: accepted}},
		{"JSON cut short is a plain 2xx", 200, "", `{"done":true`, answer{result: accepted}},
		{"text is a plain 2xx", 200, "", `OK`, answer{result: accepted}},
		{"no body is a plain 2xx", 204, "", ``, answer{result: accepted}},
		{"202 is a plain 2xx", 202, "", `{}`, answer{result: accepted}},
		{"a switch of protocols failed", 101, "", ``, answer{reason: "status 101"}},
		{"a permanent redirect failed", 308, "", ``, answer{reason: "status 308 (redirects are not followed)"}},
		{"a temporary redirect failed", 302, "", `{"done":true}`, answer{reason: "status 302 (redirects are not followed)"}},
		{"not modified failed", 304, "", ``, answer{reason: "status 304 (redirects are not followed)"}},
		{"400 failed", 400, "", `{"done":true}`, answer{reason: "status 400"}},
		{"404 failed", 404, "", ``, answer{reason: "status 404"}},
		{"415 failed", 415, "", ``, answer{reason: "status 415"}},
		{"410 retires", 410, "", ``, answer{result: retired, reason: "status 410"}},
		{"410 retires whatever Retry-After says", 410, "5", ``, answer{result: retired, reason: "status 410"}},
		{"500 failed, and its Retry-After does not count", 500, "5", ``, answer{reason: "status 500"}},
		{"a status beyond 599 failed", 999, "", ``, answer{reason: "status 999"}},
		{"429 waits as long as it says", 429, "7", ``, answer{retryAfter: 7 * time.Second, reason: "status 429"}},
		{"503 waits as long as it says", 503, " 7 ", ``, answer{retryAfter: 7 * time.Second, reason: "status 503"}},
		{"429 without Retry-After follows the schedule", 429, "", ``, answer{reason: "status 429"}},
		{"429 waits until the date it says", 429, in(90 * time.Second), ``, answer{retryAfter: 90 * time.Second, reason: "status 429"}},
		{"a date in the past is none", 503, in(-time.Second), ``, answer{reason: "status 503"}},
		{"a date far ahead is an hour", 503, in(48 * time.Hour), ``, answer{retryAfter: fsm.MaxRetryAfter, reason: "status 503"}},
		{"an hour is the most", 429, "3601", ``, answer{retryAfter: fsm.MaxRetryAfter, reason: "status 429"}},
		{"more than a number can hold is an hour", 429, strings.Repeat("9", 30), ``, answer{retryAfter: fsm.MaxRetryAfter, reason: "status 429"}},
		{"negative seconds are none", 429, "-5", ``, answer{reason: "status 429"}},
		{"fractions are none", 429, "1.5", ``, answer{reason: "status 429"}},
		{"garbage is none", 429, "soon", ``, answer{reason: "status 429"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{}
			if tc.retryAfter != "" {
				h.Set("Retry-After", tc.retryAfter)
			}
			if got := judgeAnswer(tc.status, h, []byte(tc.body), now); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestAnswersWithoutStatus(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{"the request timeout failed", context.DeadlineExceeded, "no answer in time"},
		{"a refused connection failed", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "connection refused"},
		{"a cut connection failed", io.EOF, "the connection was closed without an answer"},
		{"a name that does not resolve failed", &net.DNSError{Err: "no such host", Name: "x.invalid"}, "the host name does not resolve"},
		{"no file for a connection failed", &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}, "too many open files"},
		{
			"no file to look a name up failed",
			&net.DNSError{Err: (&net.OpError{Op: "dial", Net: "udp", Err: os.NewSyscallError("socket", syscall.EMFILE)}).Error(), Name: "x.test"},
			"too many open files",
		},
		{"a prohibited address failed", &net.OpError{Op: "dial", Err: errProhibited}, "the host leads to a prohibited address"},
		{"what the endpoint sent is not repeated", fmt.Errorf("malformed HTTP response %q", "eyJ.token"), "the request failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := judgeError(tc.err); got != (answer{result: failed, reason: tc.want}) {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
}

func TestAnswersAreReadUpToALimit(t *testing.T) {
	const body = `{"done":true}`
	padded := body + strings.Repeat(" ", maxAnswer-len(body))
	if !saysDone(readAnswer(strings.NewReader(padded))) {
		t.Error("an answer of exactly the limit was not read")
	}
	if readAnswer(strings.NewReader(padded+" ")) != nil {
		t.Error("an answer beyond the limit was looked at")
	}
	if readAnswer(io.MultiReader(strings.NewReader(body), cut{})) != nil {
		t.Error("an answer that was cut was looked at")
	}
}

type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
