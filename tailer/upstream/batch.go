package upstream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// batchBuffer is how much of an answer is looked at together, in bytes.
const batchBuffer = 32 << 10

// ReadBatch returns the next events of a stream from a position: at most so many, as far as they fit together into
// fsm.MaxDeliveryBytes. It keeps nothing else of what the server shows, and stops to read once the batch is full. ctx
// bounds all of it, and with it how much may lie before the position in the server's answer.
//
// Where the server numbers its events and does not keep those behind the position any more, the batch begins with the
// first one that it keeps.
//
// The errors are those of get; ErrNotKept also says that the stream has another incarnation now, or has nothing behind
// the position. What is cut short is an error, not a shorter batch.
func (c *Client) ReadBatch(ctx context.Context, path string, at fsm.Offset, events int) (fsm.Batch, error) {
	b, err := c.readBatch(ctx, path, at, max(events, 1))
	if err != nil {
		return fsm.Batch{}, fmt.Errorf("GET: %w", err)
	}
	return b, nil
}

func (c *Client) readBatch(ctx context.Context, path string, at fsm.Offset, events int) (b fsm.Batch, err error) {
	from, behind := at.Split()
	res, err := c.get(ctx, nil, kindPush, path, from, "", "")
	if errors.Is(err, ErrNotKept) && from != fsm.Start && c.known().number != nil {
		from = fsm.Start
		res, err = c.get(ctx, nil, kindPush, path, from, "", "")
	}
	if err != nil {
		return b, err
	}
	defer res.Body.Close()
	d := c.dialectOf(res.Header)
	next, err := d.next(res.Header.Get(HeaderNextOffset))
	switch {
	case err != nil:
		return b, err
	case next == "":
		next = from
	case next.Other(at):
		return b, ErrNotKept
	}
	b = fsm.Batch{ContentType: res.Header.Get("Content-Type"), From: at, To: next, Tail: next}
	mediaType, _, _ := mime.ParseMediaType(b.ContentType)
	b.JSON = mediaType == "application/json"

	var taken int64
	var last bool
	a := array{in: bufio.NewReaderSize(res.Body, batchBuffer)}
	switch {
	case res.StatusCode == http.StatusNoContent:
		if last = true; behind > 0 {
			err = errShrunk
		}
	case b.JSON:
		taken, last, err = readMessages(&a, &b, behind, events)
	case endless(res):
		err = AnswerError{What: "it does not say how long it is"}
	default:
		taken, last, err = readBytes(a.in, &b, behind)
	}
	switch {
	case err != nil:
	case behind+taken > 0 && !next.After(from):
		err = AnswerError{What: "it has data, and its next offset is not beyond it"}
	case d.number != nil && b.JSON:
		err = c.number(d, &b, &a, taken, last, path, from)
	case !last:
		b.To = from.At(behind+taken, next)
	}
	return b, err
}

// number gives the events of a batch their numbers, by which they are called from then on: the first events that a
// server keeps are others each time, and positions that count from them mean nothing later. The batch was read from
// where its reader stands, or from the start, if the server does not keep that any more.
func (c *Client) number(
	d *dialect, b *fsm.Batch, a *array, taken int64, last bool, path string, from fsm.Offset,
) error {
	at, before := b.From, d.number(from)
	if from == fsm.Start {
		var rest int64
		if !last {
			var err error
			if rest, err = a.rest(); err != nil {
				return err
			}
		}
		before = d.number(b.Tail) - taken - rest
	}
	if from != at {
		lost := before - d.number(at)
		switch {
		case !b.Tail.After(at), lost < 0: // the stream has expired, or the server stops
			return ErrNotKept
		case lost > 0:
			c.trims(path, at, lost)
		}
	}
	if !last {
		b.To = d.numbered(b.Tail.Incarnation(), before+taken)
	}
	b.From = fsm.Start.At(before, b.Tail)
	return nil
}

// trims says that a server has dropped events before they were pushed.
func (c *Client) trims(path string, at fsm.Offset, events int64) {
	if times, log := c.trimmed.Happened(time.Now()); log {
		c.cfg.Logger.Warn("the stream server dropped events before they were pushed; those behind them follow",
			zap.String("stream", path), zap.String("offset", at.Value()), zap.Int64("events", events),
			zap.Int("times", times))
	}
}

// errShrunk is of an answer that shows less than there was before: the stream is not what it was.
var errShrunk = AnswerError{What: "it ends before the position that the events before were read up to"}

// endless says whether the end of an answer cannot be told from a connection that was cut.
func endless(res *http.Response) bool {
	return res.ProtoMajor == 1 && res.ContentLength < 0 && len(res.TransferEncoding) == 0
}

// readMessages puts the messages behind the first ones into a batch. taken is how many, and last says that no other
// message follows.
func readMessages(a *array, b *fsm.Batch, behind int64, most int) (taken int64, last bool, err error) {
	for range behind {
		switch more, err := a.more(); {
		case err != nil:
			return 0, false, err
		case !more:
			return 0, false, errShrunk
		}
		if err := a.skip(); err != nil {
			return 0, false, err
		}
	}
	for room := fsm.MaxDeliveryBytes; ; {
		more, err := a.more()
		if err != nil || !more || len(b.Events) == most || b.TooLarge {
			return taken, !more, err
		}
		event, whole, err := a.take(room)
		switch {
		case err != nil:
			return 0, false, err
		case !whole && taken > 0:
			return taken, false, nil
		case !whole:
			b.TooLarge = true
			if err := a.skip(); err != nil {
				return 0, false, err
			}
		case !json.Valid(event):
			return 0, false, errNotJSON
		default:
			b.Events = append(b.Events, event)
		}
		taken++
		room -= len(event)
	}
}

// readBytes puts the bytes behind the first ones into a batch, as one event.
func readBytes(in *bufio.Reader, b *fsm.Batch, behind int64) (taken int64, last bool, err error) {
	switch _, err := io.CopyN(io.Discard, in, behind); {
	case errors.Is(err, io.EOF):
		return 0, false, errShrunk
	case err != nil:
		return 0, false, err
	}
	event, err := io.ReadAll(io.LimitReader(in, fsm.MaxDeliveryBytes))
	if err != nil {
		return 0, false, err
	}
	if len(event) > 0 {
		b.Events = [][]byte{event}
	}
	switch _, err = in.ReadByte(); {
	case errors.Is(err, io.EOF):
		last, err = true, nil
	case err != nil:
		return 0, false, err
	}
	return int64(len(event)), last, err
}
