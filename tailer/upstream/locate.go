package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"reveille/fsm"
)

// locateMax bounds the requests that it takes to find a position.
const locateMax = 1000

// Locate returns where an offset of a stream lies, as a position that counts from where a read from another offset
// shows it: ReadBatch goes from one to the other and stops there, although the server shows more in one answer. It
// reads what lies between them, and what follows.
//
// The errors are those of get, and those of an answer that is cut short. fsm.ErrOffset says that the offset lies behind
// the end of the stream, or not behind the other one, or that the server refuses or does not keep one of them.
func (c *Client) Locate(ctx context.Context, path string, from, to fsm.Offset) (fsm.Offset, error) {
	switch {
	case to.Other(from) || !to.After(from):
		return "", fmt.Errorf("%w: it does not lie behind where the span begins", fsm.ErrOffset)
	case c.known().number != nil:
		return to, nil
	}
	for range locateMax {
		next, n, err := c.count(ctx, path, from)
		switch {
		case err != nil:
			return "", err
		case next == to:
			return to, nil
		case next == from || next.Other(to):
			return "", fmt.Errorf("%w: it lies behind the end of the stream", fsm.ErrOffset)
		case next.After(to):
			return c.inside(ctx, path, to, from, next, n)
		}
		from = next
	}
	return "", AnswerError{What: "it does not come to the offset"}
}

// inside returns where an offset lies inside of what reading from another shows, which is n messages and leads to next.
// It counts what lies behind either of them up to one and the same offset. The stream may grow meanwhile.
func (c *Client) inside(ctx context.Context, path string, to, from, next fsm.Offset, n int64) (fsm.Offset, error) {
	for at := to; ; {
		behind := at.After(next)
		read := at
		if behind {
			read = next
		}
		reached, counted, err := c.count(ctx, path, read)
		switch {
		case err != nil:
			return "", err
		case behind:
			next, n = reached, n+counted
		default:
			at, n = reached, n-counted
		}
		switch {
		case at == next && n < 0:
			return "", errShrunk
		case at == next:
			return from.At(n, next), nil
		case reached == read:
			return "", AnswerError{What: "it does not lead to an offset that another one has led to"}
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		}
	}
}

// count returns how many messages, or bytes, a read from an offset shows, and where it leads to.
func (c *Client) count(ctx context.Context, path string, from fsm.Offset) (next fsm.Offset, n int64, err error) {
	r, err := c.open(ctx, path, from)
	var answer AnswerError
	switch {
	case errors.Is(err, ErrNotKept):
		return "", 0, fmt.Errorf("%w: the stream server does not keep %s any more", fsm.ErrOffset, from.Value())
	case errors.As(err, &answer) && answer.Status == http.StatusBadRequest:
		return "", 0, fmt.Errorf("%w: the stream server refuses %s", fsm.ErrOffset, from.Value())
	case err != nil:
		return "", 0, err
	}
	defer r.close()
	defer r.within(ctx)()
	switch {
	case r.status == http.StatusNoContent:
	case !r.json:
		n, err = io.Copy(io.Discard, r.in.in)
	default:
		var more bool
		if more, err = r.in.more(); more && err == nil {
			n, err = r.in.rest()
		}
	}
	if err != nil {
		return "", 0, fmt.Errorf("GET: %w", err)
	}
	return r.next, n, nil
}
