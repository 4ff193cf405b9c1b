package upstream

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"reveille/fsm"
)

// TestAppend holds what an append, a creation and a deletion ask for, with the headers of every request, and what
// answers mean.
func TestAppend(t *testing.T) {
	status := http.StatusNoContent
	var got string
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type") + " " + r.Header.Get("Authorization") +
			" " + string(body)
		w.Header().Set(HeaderNextOffset, "0000000000000000_0000000000000007")
		w.WriteHeader(status)
	}, "/v1", http.Header{"Authorization": {"Bearer it"}})
	for _, tc := range []struct {
		status  int
		created bool
		want    error
	}{
		{http.StatusNoContent, false, nil},
		{http.StatusOK, false, nil},
		{http.StatusCreated, true, nil},
		{http.StatusNotFound, false, ErrGone},
		{http.StatusGone, false, ErrGone},
		{http.StatusConflict, false, AnswerError{Status: http.StatusConflict}},
		{http.StatusBadGateway, false, AnswerError{Status: http.StatusBadGateway}},
	} {
		tail := fsm.Offset("")
		if tc.want == nil {
			tail = "0000000000000000_0000000000000007"
		}
		status = tc.status
		at, err := c.Append(t.Context(), "/a", "application/json", []byte(`[1,2]`))
		if !errors.Is(err, tc.want) || at != tail || got != "POST /v1/a application/json Bearer it [1,2]" {
			t.Errorf("%d to %s: %q, %v", tc.status, got, at, err)
		}
		at, created, err := c.Create(t.Context(), "/a", "application/json")
		if !errors.Is(err, tc.want) || at != tail || created != tc.created ||
			got != "PUT /v1/a application/json Bearer it " {
			t.Errorf("%d to %s: %q, %t, %v", tc.status, got, at, created, err)
		}
		err = c.Delete(t.Context(), "/a")
		if !errors.Is(err, tc.want) || got != "DELETE /v1/a  Bearer it " {
			t.Errorf("%d to %s: %v", tc.status, got, err)
		}
	}
	got = ""
	if _, err := c.Append(t.Context(), "/../a", "application/json", nil); err == nil || got != "" {
		t.Errorf("a path that is none: %v, %s", err, got)
	}
	c.learn(&anyCable)
	if _, err := c.Append(t.Context(), "/a", "application/json", nil); !errors.Is(err, errReadOnly) || got != "" {
		t.Errorf("a server that takes no writes: %v, %s", err, got)
	}
}
