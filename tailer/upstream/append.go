package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"reveille/fsm"
)

var errReadOnly = errors.New("the stream server takes no writes by this protocol")

// Append appends a body to a stream of its content type (protocol, Append to Stream), and returns the new tail. ErrGone
// says that there is no such stream. After any other error, the server may have appended the body.
func (c *Client) Append(ctx context.Context, path, contentType string, body []byte) (fsm.Offset, error) {
	tail, _, err := c.write(ctx, http.MethodPost, path, contentType, body)
	return tail, err
}

// Create makes a stream unless it exists (protocol, Create Stream). It returns the tail, and whether the request made
// the stream.
func (c *Client) Create(ctx context.Context, path, contentType string) (tail fsm.Offset, created bool, err error) {
	return c.write(ctx, http.MethodPut, path, contentType, nil)
}

// Delete deletes a stream (protocol, Delete Stream). ErrGone says that there is no such stream.
func (c *Client) Delete(ctx context.Context, path string) error {
	_, _, err := c.write(ctx, http.MethodDelete, path, "", nil)
	return err
}

func (c *Client) write(
	ctx context.Context, method, path, contentType string, body []byte,
) (tail fsm.Offset, created bool, err error) {
	if !c.TakesWrites() {
		return "", false, errReadOnly
	}
	target, err := c.target(path, url.Values{})
	if err != nil {
		return "", false, err
	}
	began, status := time.Now(), 0
	defer func() { c.metrics.ended(kindWrite, began, status, err) }()
	req := c.request(ctx, method, target)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if len(body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	res, err := c.shared.Do(req)
	if err != nil {
		return "", false, fmt.Errorf("%w: %w", errNoAnswer, withoutURL(err))
	}
	defer func() { _ = res.Body.Close() }()
	status = res.StatusCode
	switch {
	case slices.Contains(c.dialectOf(res.Header).gone, status):
		return "", false, ErrGone
	case !isSuccess(status):
		return "", false, AnswerError{Status: status}
	}
	return c.NextOffset(res.Header), status == http.StatusCreated, nil
}
