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
		want   outcome
	}{
		{"an answer", 200, nil, outcomeOK},
		{"an answer without content", 204, nil, outcomeOK},
		{"no such stream", 404, nil, outcomeMissing},
		{"no such stream any more", 410, ErrGone, outcomeMissing},
		{"a redirect, which is not followed", 302, StatusError{302}, outcomeClientError},
		{"too many requests", 429, StatusError{429}, outcomeClientError},
		{"an internal error", 500, StatusError{500}, outcomeServerError},
		{"an offset that is none", 200, AnswerError{"its next offset"}, outcomeInvalid},
		{"a refused connection", 0, errors.New("connection refused"), outcomeUnreachable},
		{"no answer in time", 0, timeout, outcomeTimeout},
		{"a request that is not needed any more", 0, &url.Error{Op: "Get", Err: context.Canceled}, outcomeCancelled},
	} {
		if got := outcomeOf(tc.status, tc.err); got != tc.want {
			t.Errorf("%s counts as %s, want %s", tc.name, outcomeNames[got], outcomeNames[tc.want])
		}
	}
}
