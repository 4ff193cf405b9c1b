package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"reveille/fsm"
)

const (
	// locateMax bounds the requests that lead to a position, countMax those that count what lies behind it.
	locateMax, countMax = 1000, 100
)

// Locate returns where the offset to lies in a stream. It reads what lies between the offset from and there, and some
// of what follows. The result is a position that counts from an offset of these reads. So ReadBatch can read from one
// to the other and stop there, however much the server then shows in one answer.
//
// Locate returns the errors of get. It also fails if an answer is cut short or does not show where the offset lies. The
// error fsm.ErrOffset says that to lies behind the end of the stream, or not behind from. It also says that the server
// refuses or does not keep one of them. If the server numbers its events, Locate reads nothing. The caller must know
// whether the offset exists.
func (c *Client) Locate(ctx context.Context, path string, from, to fsm.Offset) (fsm.Offset, error) {
	switch {
	case to.Other(from) || !to.After(from):
		return "", errNothingBetween
	case c.known().number != nil:
		return to, nil
	}
	p, err := c.place(ctx, path, from, to)
	switch {
	case err != nil:
		return "", err
	case p.before+p.n == 0:
		return "", errNothingBetween
	}
	return p.base.At(p.n, to), nil
}

var errNothingBetween = fmt.Errorf("%w: no event lies between it and where the span begins", fsm.ErrOffset)

// place is where an offset lies behind another one: n messages, or bytes, behind base. Reading from the other offset
// has led to base, after before messages or bytes.
type place struct {
	base      fsm.Offset
	before, n int64
}

// place finds where an offset lies behind another one.
func (c *Client) place(ctx context.Context, path string, from, to fsm.Offset) (p place, err error) {
	p.base = from
	for range locateMax {
		s, err := c.look(ctx, path, p.base, to)
		switch {
		case err != nil:
			return place{}, err
		case s.next == to:
			p.n = s.n
			return p, nil
		case !s.next.After(p.base) || s.next.Other(to):
			return place{}, fmt.Errorf("%w: it lies behind the end of the stream", fsm.ErrOffset)
		case s.next.After(to):
			p.n, err = c.inside(ctx, path, to, s)
			return p, err
		}
		p.base, p.before = s.next, p.before+s.n
	}
	return place{}, AnswerError{What: "it does not come to the offset"}
}

// inside returns how much of what a read shows lies before an offset. A read from the offset tells that if its content
// fits in one place only. Otherwise inside counts what lies behind the offset, and behind the shown part, up to where
// both lead.
func (c *Client) inside(ctx context.Context, path string, to fsm.Offset, shown stretch) (int64, error) {
	s, err := c.look(ctx, path, to, to)
	if err != nil {
		return 0, err
	}
	if n, ok := shown.overlap(s); ok {
		return n, nil
	}
	n, at, next := shown.n-s.n, s.next, shown.next
	read, reached := to, at
	for range countMax {
		switch {
		case at == next && n < 0:
			return 0, errShrunk
		case at == next:
			return n, nil
		case reached == read:
			return 0, AnswerError{What: "it does not lead to an offset that another one has led to"}
		}
		behind := at.After(next)
		if read = at; behind {
			read = next
		}
		s, err := c.look(ctx, path, read, "")
		if err != nil {
			return 0, err
		}
		if reached = s.next; behind {
			next, n = reached, n+s.n
		} else {
			at, n = reached, n-s.n
		}
	}
	return 0, AnswerError{What: "it does not show where the offset lies, for its events are alike and still come"}
}

// look returns what a read from an offset shows. It makes sums if the read leads beyond the offset beyond, unless that
// is empty.
func (c *Client) look(ctx context.Context, path string, from, beyond fsm.Offset) (s stretch, err error) {
	r, err := c.openAt(ctx, path, from)
	if err != nil {
		return s, err
	}
	defer r.close()
	defer r.within(ctx)()
	s.next = r.next
	sums := beyond != "" && s.next.After(beyond)
	switch {
	case r.status == http.StatusNoContent:
	case r.json:
		err = s.addMessages(&r.in, sums)
	default:
		err = s.addBytes(r.in.in, sums)
	}
	if err != nil {
		return s, fmt.Errorf("GET: %w", err)
	}
	return s, nil
}

// openAt asks for what lies behind an offset that a client has named.
func (c *Client) openAt(ctx context.Context, path string, at fsm.Offset) (*reading, error) {
	r, err := c.open(ctx, path, at)
	var answer AnswerError
	switch {
	case errors.Is(err, ErrNotKept), errors.Is(err, errGoneThere) && c.has(ctx, path):
		return nil, fmt.Errorf("%w: the stream server does not keep %s any more", fsm.ErrOffset, at.Value())
	case errors.As(err, &answer) && answer.Status == http.StatusBadRequest:
		return nil, fmt.Errorf("%w: the stream server refuses %s", fsm.ErrOffset, at.Value())
	}
	return r, err
}

// Readable returns nil if the stream server shows what lies behind an offset. Otherwise it returns the errors that
// Locate does. It reads no event.
func (c *Client) Readable(ctx context.Context, path string, at fsm.Offset) error {
	r, err := c.openAt(ctx, path, at)
	if err != nil {
		return err
	}
	defer r.close()
	if r.from != at { // of a server that numbers its events, getKept has read from the start
		return fmt.Errorf("%w: the stream server does not keep %s any more", fsm.ErrOffset, at.Value())
	}
	return nil
}
