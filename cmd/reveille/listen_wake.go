package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"reveille/tailer/upstream"
)

// maxReads bounds the reads of one stream for one wake. What is left is pending, and wakes again.
const maxReads = 100

// work does what every worker does with a wake: claim it, read, ack, say that it is done.
func (l *listener) work(ctx context.Context, got *received) {
	got.Status = http.StatusNoContent
	err := l.follow(ctx, got)
	if err == nil {
		got.Done = true
		return
	}
	got.Failed = err.Error()
	got.Status = http.StatusInternalServerError
}

func (l *listener) follow(ctx context.Context, got *received) error {
	at := strings.LastIndex(got.wake.Callback, "/callback/")
	if at < 0 {
		return errors.New("its callback URL is none of Reveille")
	}
	root := got.wake.Callback[:at]
	if l.listen.upstream != "" {
		root = strings.TrimRight(l.listen.upstream, "/")
	}
	streams, err := l.callback(ctx, &got.wake, map[string]any{"epoch": got.wake.Epoch, "wake_id": got.wake.WakeID})
	if err != nil {
		return fmt.Errorf("cannot claim it: %w", err)
	}
	acks := make([]streamOffset, 0, len(streams))
	for _, s := range streams {
		events, err := l.readStream(ctx, root, s)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", s.Path, err)
		}
		got.Streams = append(got.Streams, events)
		acks = append(acks, streamOffset{s.Path, events.To})
	}
	if _, err := l.callback(ctx, &got.wake, map[string]any{
		"epoch": got.wake.Epoch, "acks": acks, "done": true,
	}); err != nil {
		return fmt.Errorf("cannot ack it: %w", err)
	}
	return nil
}

// callback reports to Reveille, and returns the streams of the consumer with their offsets.
func (l *listener) callback(ctx context.Context, wake *wakeBody, report map[string]any) ([]streamOffset, error) {
	text, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, wake.Callback, bytes.NewReader(text))
	if err != nil {
		return nil, errors.New("its callback URL is malformed")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+wake.Token)
	res, err := l.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer from its callback URL, %s://%s, which begins with REVEILLE_PUBLIC_URL: %w",
			req.URL.Scheme, req.URL.Host, withoutURL(err))
	}
	defer res.Body.Close()
	var answer struct {
		Token   string         `json:"token"`
		Streams []streamOffset `json:"streams"`
		Error   struct{ Code, Message string }
	}
	err = json.NewDecoder(io.LimitReader(res.Body, maxReceived)).Decode(&answer)
	switch {
	case answer.Error.Code != "":
		return nil, refusal{answer.Error.Code, answer.Error.Message}
	case err != nil || res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("status %d from its callback URL, not from Reveille", res.StatusCode)
	}
	wake.Token = cmp.Or(answer.Token, wake.Token)
	return answer.Streams, nil
}

// readStream reads a stream from an offset to its end, or for as long as it may.
func (l *listener) readStream(ctx context.Context, root string, from streamOffset) (*shownEvents, error) {
	s := &shownEvents{Path: from.Path, From: from.Offset, To: from.Offset, Events: []eventText{}, More: true}
	for n := 0; s.More && n < maxReads; n++ {
		if err := l.readOnce(ctx, root, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (l *listener) readOnce(ctx context.Context, root string, s *shownEvents) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, root+s.Path+"?offset="+url.QueryEscape(s.To), nil)
	if err != nil || !strings.HasPrefix(s.Path, "/") { // without it, the path could make another host
		return errors.New("its path makes no URL")
	}
	res, err := l.client.Do(req)
	if err != nil {
		return fmt.Errorf("no answer from %s://%s: %w", req.URL.Scheme, req.URL.Host, withoutURL(err))
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK, http.StatusNoContent:
	case http.StatusNotFound:
		return fmt.Errorf("status 404 from %s://%s: is it deleted? Without the gateway of Reveille, "+
			"give the URL of the stream server with --upstream", req.URL.Scheme, req.URL.Host)
	default:
		return fmt.Errorf("status %d from %s://%s", res.StatusCode, req.URL.Scheme, req.URL.Host)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReceived+1))
	if err != nil {
		return fmt.Errorf("the answer ended early: %w", withoutURL(err))
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	var list []json.RawMessage
	switch {
	case len(body) > maxReceived:
		s.add([]byte(fmt.Sprintf("more than %d bytes, which are not shown", maxReceived)))
	case kind == "application/json" && json.Unmarshal(body, &list) == nil:
		for _, event := range list {
			s.add(event)
		}
	case len(body) > 0:
		s.add(body)
	}
	next := res.Header.Get(upstream.HeaderNextOffset)
	s.More = next != "" && next != s.To && !strings.EqualFold(res.Header.Get(upstream.HeaderUpToDate), "true")
	s.To = cmp.Or(next, s.To)
	return nil
}
