package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"reveille/test/harness"
)

// client ignores the proxies of the environment: everything is on this machine.
var client = &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}

// request sends JSON, or nothing if body is nil. It reads the answer, which must have one of the statuses.
func request(ctx context.Context, method, url, token string, body any, want ...int) (http.Header, []byte, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, nil, err
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, reader)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, nil, err
	}
	if !slices.Contains(want, res.StatusCode) {
		return nil, nil, fmt.Errorf("%s %s was answered %s: %s", method, url, res.Status, answer)
	}
	return res.Header, answer, nil
}

// subscribe creates a subscription and returns its secret.
func subscribe(ctx context.Context, api, id string, body map[string]string) (secret string, err error) {
	_, answer, err := request(ctx, http.MethodPut, api+pattern+"?subscription="+id, "", body, http.StatusCreated)
	if err != nil {
		return "", err
	}
	var created harness.Subscription
	if err := json.Unmarshal(answer, &created); err != nil {
		return "", err
	}
	return created.Secret, nil
}

// write creates the stream through the gateway. Then it appends an event every second, directly to the server, until
// ctx ends.
func write(ctx context.Context, gateway, server string, say *console) error {
	tick := time.NewTicker(appendEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		method, url := http.MethodPost, server+stream
		switch n {
		case 1:
			method, url = http.MethodPut, gateway+stream
			say.line("writer",
				`creates %s with {"n":1} in it, through Reveille, which so learns that there is such a stream`, stream)
		case 2:
			say.line("writer",
				`appends {"n":2}, this and the next straight to the stream server, behind Reveille's back`)
		default:
			say.line("writer", `appends {"n":%d}`, n)
		}
		_, _, err := request(ctx, method, url, "", map[string]int{"n": n}, http.StatusOK, http.StatusCreated,
			http.StatusNoContent)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// read returns the messages of a stream from an offset to its tail, and the offset read to.
func read(ctx context.Context, url, offset string) (messages []json.RawMessage, next string, err error) {
	for {
		header, body, err := request(ctx, http.MethodGet, url+"?offset="+offset, "", nil, http.StatusOK)
		if err != nil {
			return nil, "", err
		}
		var batch []json.RawMessage
		if err := json.Unmarshal(body, &batch); err != nil {
			return nil, "", fmt.Errorf("GET %s: %w", url, err)
		}
		messages, next = append(messages, batch...), header.Get("Stream-Next-Offset")
		if header.Get("Stream-Up-To-Date") == "true" || next == offset {
			return messages, next, nil
		}
		offset = next
	}
}

// callback reports to Reveille and returns the streams with their offsets. It uses the token of the wake for each
// callback: a token is good for an hour, longer than a wake of the demo takes.
func callback(ctx context.Context, wake harness.Payload, cb harness.Callback) ([]harness.StreamOffset, error) {
	_, answer, err := request(ctx, http.MethodPost, wake.Callback, wake.Token, cb, http.StatusOK)
	if err != nil {
		return nil, err
	}
	var said harness.CallbackAnswer
	if err := json.Unmarshal(answer, &said); err != nil {
		return nil, err
	}
	return said.Streams, nil
}
