package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"reveille/test/harness"
)

// receiver is the endpoint that the events themselves are pushed to. All that it does is answer.
type receiver struct {
	secret string // of its subscription
	say    *console
	result chan error // how the demo ends
}

func (r *receiver) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 2<<20))
	if err == nil {
		err = harness.VerifySignature(r.secret, req.Header.Get("Webhook-Signature"), body, time.Now())
	}
	if err != nil && req.Context().Err() == nil {
		select {
		case r.result <- fmt.Errorf("the receiver got a push and %w", err):
		default: // it is ending already
		}
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	r.say.line("receiver", "got %s from %s by push, id %s, signature ok", body, req.Header.Get("Reveille-Stream"),
		req.Header.Get("Webhook-Id"))
	rw.WriteHeader(http.StatusNoContent)
}
