package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"reveille/test/harness"
)

// refused is the event that the receiver does not take before its replay.
const refused = `{"n":2}`

// receiver is the endpoint that gets the events themselves. It only answers. It refuses one event until the replay.
type receiver struct {
	secret string // of its subscription
	say    *console
	result chan error // errEnough, or the fault that ends the demo
	// replayed is closed once the refused event has come again.
	replayed chan struct{}
	once     sync.Once
}

func (r *receiver) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 2<<20))
	if err == nil {
		err = harness.VerifyStandard(r.secret, req.Header, body, time.Now())
	}
	if err != nil && req.Context().Err() == nil {
		select {
		case r.result <- fmt.Errorf("the receiver got a push and %w", err):
		default: // the demo is ending already
		}
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	replay := req.Header.Get("Reveille-Replay") == "true"
	how := "by push"
	switch {
	case string(body) == refused && !replay:
		r.say.line("receiver", "refuses %s with status 422: no retry would help, and the stream goes on", body)
		rw.WriteHeader(http.StatusUnprocessableEntity)
		return
	case replay:
		how = "by replay"
	}
	r.say.line("receiver", "got %s from %s %s, id %s, signature ok", body, req.Header.Get("Reveille-Stream"), how,
		req.Header.Get("Webhook-Id"))
	rw.WriteHeader(http.StatusNoContent)
	if replay {
		r.once.Do(func() { close(r.replayed) })
	}
}

// repair waits for the dead letter of the refused event, and replays it, as an operator does.
func repair(ctx context.Context, operator string, say *console) error {
	var body struct {
		Letters []struct{ ID, Stream, From, Reason string } `json:"dead_letters"`
	}
	err := harness.Poll(wakeWithin, func() error {
		_, answer, err := request(ctx, http.MethodGet, operator+"/api/v1/dead-letters?subscription=pushed", "", nil,
			http.StatusOK)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = json.Unmarshal(answer, &body)
		}
		if err == nil && len(body.Letters) == 0 {
			err = errors.New("there is no dead letter")
		}
		return err
	})
	if ctx.Err() != nil || err != nil {
		return err
	}
	l := body.Letters[0]
	say.line("reveille", "keeps dead letter %s: %s, the event behind offset %s of %s", l.ID, l.Reason, l.From, l.Stream)
	say.line("demo", "reveille dead-letters replay %s", l.ID)
	replay := operator + "/api/v1/dead-letters/" + l.ID + "/replay"
	_, _, err = request(ctx, http.MethodPost, replay, "", nil, http.StatusAccepted)
	if ctx.Err() != nil {
		return nil
	}
	return err
}
