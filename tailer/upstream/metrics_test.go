package upstream

import (
	"context"
	"errors"
	"net/url"
	"testing"
)

func TestRequestsToUpstreamAreCountedByWhatBecameOfThem(t *testing.T) {
	timeout := &url.Error{Op: "Get", Err: context.DeadlineExceeded}
	for _, tc := range []struct {
		name   string
		status int
		err    error
		want   string
	}{
		{"an answer", 200, nil, "ok"},
		{"an answer without content", 204, nil, "ok"},
		{"no such stream", 404, nil, "missing"},
		{"no such stream any more", 410, ErrGone, "missing"},
		{"a redirect, which is not followed", 302, AnswerError{Status: 302}, "client_error"},
		{"too many requests", 429, AnswerError{Status: 429}, "client_error"},
		{"an internal error", 500, AnswerError{Status: 500}, "server_error"},
		{"an offset that is none", 200, AnswerError{What: "its next offset"}, "invalid"},
		{"a refused connection", 0, errors.New("connection refused"), "unreachable"},
		{"no answer in time", 0, timeout, "timeout"},
		{"a request that is not needed any more", 0, &url.Error{Op: "Get", Err: context.Canceled}, "cancelled"},
	} {
		if got := outcomeOf(tc.status, tc.err); got != tc.want {
			t.Errorf("%s counts as %s, want %s", tc.name, got, tc.want)
		}
	}
}
