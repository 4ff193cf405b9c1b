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

	"reveille/dispatcher/format"
	"reveille/fsm"
)

func TestAnswersWithoutStatus(t *testing.T) {
	noFile := os.NewSyscallError("socket", syscall.EMFILE)
	for _, tc := range []struct {
		name   string
		err    error
		class  format.Class
		reason string
	}{
		{"the request timeout failed", context.DeadlineExceeded, format.ClassTimeout, "no answer in time"},
		{
			"a refused connection failed", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
			format.ClassConnection, "connection refused",
		},
		{
			"a connection that timed out failed", &net.OpError{Op: "read", Err: syscall.ETIMEDOUT},
			format.ClassTimeout, "connection timed out",
		},
		{"a cut connection failed", io.EOF, format.ClassConnection, "the connection was closed without an answer"},
		{
			"a name that does not resolve failed", &net.DNSError{Err: "no such host", Name: "x.invalid"},
			format.ClassDNS, "the host name does not resolve",
		},
		{
			"no file for a connection failed", &net.OpError{Op: "dial", Err: noFile},
			format.ClassFiles, "too many open files",
		},
		{
			"no file to look a name up failed",
			&net.DNSError{Err: (&net.OpError{Op: "dial", Net: "udp", Err: noFile}).Error(), Name: "x.test"},
			format.ClassFiles, "too many open files",
		},
		{
			"a prohibited address failed", &net.OpError{Op: "dial", Err: errProhibited},
			format.ClassProhibited, "the host leads to a prohibited address",
		},
		{
			"what the endpoint sent is not repeated", fmt.Errorf("malformed HTTP response %q", "eyJ.token"),
			format.ClassOther, "the request failed",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := format.Verdict{Result: fsm.AttemptFailed, Class: tc.class, Reason: tc.reason}
			if got := judgeError(tc.err); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestAnswersAreReadUpToALimit(t *testing.T) {
	const body = `{"done":true}`
	padded := body + strings.Repeat(" ", maxAnswer-len(body))
	answer := func(r io.Reader) *http.Response { return &http.Response{Body: io.NopCloser(r)} }
	if string(readAnswer(answer(strings.NewReader(padded)))) != padded {
		t.Error("an answer of exactly the limit was not read")
	}
	if readAnswer(answer(strings.NewReader(padded+" "))) != nil {
		t.Error("an answer beyond the limit was looked at")
	}
	if readAnswer(answer(io.MultiReader(strings.NewReader(body), cut{}))) != nil {
		t.Error("an answer that was cut was looked at")
	}
	for name, read := range map[string]func(*http.Response){
		"that may be done":     func(r *http.Response) { readAnswer(r) },
		"that decides nothing": func(r *http.Response) { drain(r, func() {}) },
	} {
		beyond := strings.NewReader(padded)
		if read(answer(io.MultiReader(strings.NewReader(padded+" "), beyond))); beyond.Len() < len(padded) {
			t.Errorf("of an answer %s, more was read than the limit", name)
		}
	}
}

type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
