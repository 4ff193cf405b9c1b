package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// callbackTries is how often one callback is sent if it gets no answer or Reveille cannot accept it now.
	callbackTries = 10
	// callbackTime bounds one try. Reveille takes up to 20 s.
	callbackTime = 30 * time.Second
)

// errOver means that this wake is no longer ours: stop, and send no further callback.
var errOver = errors.New("the wake is over")

// callback is the body of a callback.
type callback struct {
	Epoch  int64          `json:"epoch"`
	WakeID string         `json:"wake_id,omitempty"`
	Acks   []streamOffset `json:"acks,omitempty"`
	Done   bool           `json:"done,omitempty"`
}

// callbackAnswer is the body of the answer to a callback.
type callbackAnswer struct {
	Token   string         `json:"token"`
	Streams []streamOffset `json:"streams"`
	Error   struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// callbacks sends the callbacks of one wake, one at a time, each with the token of the previous answer.
type callbacks struct {
	wake  wake
	trace string // the traceparent of the wake, if it had one

	mu    sync.Mutex
	token string
}

// send returns the streams with their current offsets. Every callback may be repeated: it takes effect once.
func (c *callbacks) send(cb callback) ([]streamOffset, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cb.Epoch = c.wake.Epoch
	var err error
	for try := 1; try <= callbackTries; try++ {
		var status int
		var wait time.Duration
		var answer callbackAnswer
		status, wait, answer, err = c.post(cb)
		if err == nil && answer.Token != "" {
			c.token = answer.Token
		}
		switch {
		case err != nil: // no answer, or an answer of some proxy in between
		case status == http.StatusOK:
			return answer.Streams, nil
		case answer.Error.Code == "TOKEN_EXPIRED": // the answer has a fresh token: send the same again
			err = errors.New("callback: the token keeps expiring")
			continue
		case answer.Error.Code == "INVALID_OFFSET":
			return nil, fmt.Errorf("callback: %s: %s", answer.Error.Code, answer.Error.Message)
		case status == http.StatusConflict || status == http.StatusGone:
			return nil, fmt.Errorf("%w: %s", errOver, answer.Error.Code)
		case status >= 500:
			err = fmt.Errorf("callback: status %d %s", status, answer.Error.Code)
		default:
			return nil, fmt.Errorf("callback: status %d %s: %s", status, answer.Error.Code, answer.Error.Message)
		}
		<-time.After(max(wait, time.Second))
	}
	return nil, err
}

// post sends the callback once. wait is the Retry-After of the answer.
func (c *callbacks) post(cb callback) (status int, wait time.Duration, answer callbackAnswer, err error) {
	body, err := json.Marshal(cb)
	if err != nil {
		return 0, 0, answer, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callbackTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.wake.Callback, bytes.NewReader(body))
	if err != nil {
		return 0, 0, answer, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.token)
	if c.trace != "" {
		req.Header.Set("traceparent", c.trace)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, answer, err
	}
	defer res.Body.Close()
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // 0 if there is none
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil && res.StatusCode < 500 {
		return 0, 0, answer, fmt.Errorf("callback: status %d with a body that is not JSON: %w", res.StatusCode, err)
	}
	return res.StatusCode, time.Duration(seconds) * time.Second, answer, nil
}

// keepAlive sends an empty callback at this interval until ctx ends, so that slow work is not taken for a crash. An
// error means that the wake is over.
func (c *callbacks) keepAlive(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if _, err := c.send(callback{}); errors.Is(err, errOver) {
				return err
			}
		}
	}
}
