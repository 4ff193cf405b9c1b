package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"reveille/fsm"
)

// batchBuffer is how much of an answer is looked at together, in bytes.
const batchBuffer = 32 << 10

// ReadBatch returns the next events of a stream from a position: at most so many, none behind end unless that is empty,
// and as far as they fit together into fsm.MaxDeliveryBytes. It keeps nothing else of what the server shows, and stops
// to read once the batch is full.
//
// The answer of the server is kept open for a while: the reader's next batch goes on with it, if that is from where
// this one has ended. It shows the stream as it was when it was asked for, so what is another stream, though under the
// same name, needs another reader. Any other position is read up to from the offset before it. What does not come by
// the end of ctx is asked for again by the next call, which may find that more has been read by then.
//
// An end counts from an offset that a read has led to. The batch ends there, too, if the server shows more in one
// answer by now: how much of it lies before that offset is found by other reads. And where it shows less in one answer
// than it did, what follows that is read as a part of it.
//
// If matches is not nil, only those events of JSON that it is true of are put into the batch. The others are passed
// over, as many as passBytes and passTime allow: a batch may have none that matches, and then To is how far it has
// come. What is too large or too deep is not passed over, for matches cannot tell. Bytes are not looked at.
//
// If span is not 0, an attempt before had a batch from the same position with that Span. No more of the stream is
// looked at, whatever matches takes by now: what lies behind has had no attempt.
//
// What a watch of the stream has just been shown is not asked for once more (recent), unless the events are read again:
// then an attempt may have brought more than that.
//
// Where the server numbers its events and does not keep those behind the position any more, the batch has no events and
// leads to the first one that it keeps: that one was not tried before, whatever became of those that are gone.
//
// What lies before an end was there. Where the server shows that it keeps nothing of it, or not the first of it, the
// batch says so (NotKept): those events do not come again.
//
// The errors are those of get; ErrNotKept also says that the stream has another incarnation now, or has nothing behind
// the position. What is cut short is an error, not a shorter batch.
func (c *Client) ReadBatch(
	ctx context.Context, reader, path string, at, end fsm.Offset, events int, span int64, matches func([]byte) bool,
) (fsm.Batch, error) {
	b, err := c.readBatch(ctx, reader, path, at, end, want{events, span, matches})
	if end != "" && (errors.Is(err, errLost) || errors.Is(err, errGoneThere) && c.has(ctx, path)) {
		return c.lost(at, end), nil
	}
	return b, err
}

// want is what a batch is to have: at most so many events, and only those that match, unless matches is nil. If span is
// not 0, they are read again: then it is looked at exactly as many as were before, or bytes.
type want struct {
	events  int
	span    int64
	matches func([]byte) bool
}

func (c *Client) readBatch(
	ctx context.Context, reader, path string, at, end fsm.Offset, w want,
) (b fsm.Batch, err error) {
	if r := c.readings.take(reader); r != nil {
		if _, ok := r.ahead(path, at); !ok {
			r.close()
		} else if b, err = c.readOn(ctx, reader, r, at, end, w); err == nil || again(ctx, err) {
			return b, err
		} // it may have been cut while it was kept
	}
	if w.span == 0 {
		if r := c.fromRecent(reader, path, at); r != nil {
			// Otherwise something has come behind it by now, or the server is asked whether it is as wrong once more.
			if b, err = c.readOn(ctx, reader, r, at, end, w); err == nil && len(b.Events)+int(b.Passed) > 0 {
				return b, nil
			}
		}
	}
	r, err := c.open(ctx, path, at)
	if err != nil {
		return fsm.Batch{}, fmt.Errorf("GET: %w", err)
	}
	return c.readOn(ctx, reader, r, at, end, w)
}

// errLost is of an answer that shows that nothing is kept of what lay behind a position.
var errLost = fmt.Errorf("%w, nor what followed it", ErrNotKept)

// has says whether upstream has shown that it has a stream.
func (c *Client) has(ctx context.Context, path string) bool {
	info, err := c.Head(ctx, path)
	return err == nil && info.Exists
}

// lost is the batch of what lay between a position and an end, none of which is kept any more.
func (c *Client) lost(at, end fsm.Offset) fsm.Batch {
	b := fsm.Batch{From: at, To: end, Within: end, NotKept: true}
	if d := c.known(); d.number != nil {
		from, n := at.Split()
		b.From = fsm.Start.At(d.number(from)+n, end)
	}
	return b
}

// again says whether it is for the next call to go on after an error.
func again(ctx context.Context, err error) bool { return ctx.Err() != nil || errors.Is(err, errFar) }

// readOn reads a batch from an answer, which it keeps if there is more to read.
func (c *Client) readOn(
	ctx context.Context, reader string, r *reading, at, end fsm.Offset, w want,
) (fsm.Batch, error) {
	until, bounded := early(ctx)
	b, last, err := r.batch(ctx, at, end, w)
	for err != nil && r.over && ctx.Err() == nil {
		f, ok, failed := r.follow(ctx)
		if err = cmp.Or(failed, err); !ok {
			break
		}
		if r = f; bounded && time.Now().After(until) {
			err = errFar
			break
		}
		b, last, err = r.batch(ctx, at, end, w)
	}
	if err == nil && !last && (end == "" || end.After(b.To)) || errors.Is(err, errFar) {
		c.readings.keep(reader, r)
	} else {
		r.close()
	}
	if err != nil {
		return fsm.Batch{}, fmt.Errorf("GET: %w", err)
	}
	return b, nil
}

// errShrunk is of an answer that shows less than there was before: the stream is not what it was.
var errShrunk = AnswerError{What: "it ends before the position that the events before were read up to"}

// messages puts the next messages into a batch, up to how many of the answer lie behind then. last says that no other
// message follows.
func (r *reading) messages(b *fsm.Batch, w want, upto int64, p passing) (last bool, err error) {
	before := r.done
	for room := fsm.MaxDeliveryBytes; ; r.done++ {
		more, err := r.in.more()
		if err != nil || !more || len(b.Events) >= max(w.events, 1) || r.done >= upto || b.TooLarge || b.TooDeep ||
			w.span == 0 && b.Passed > 0 && p.over() {
			return !more, err
		}
		event, whole, err := r.in.take(room)
		switch {
		case err != nil:
			return false, err
		case !whole && r.done > before: // it is for the next batch
			return false, nil
		case !whole:
			b.TooDeep = r.in.deep()
			b.TooLarge = !b.TooDeep
			if err := r.in.skip(); err != nil {
				return false, err
			}
		case !json.Valid(event):
			return false, errNotJSON
		case w.matches != nil && !w.matches(event):
			b.Passed++
			p.bytes += len(event)
		default:
			if w.matches != nil {
				b.Places = append(b.Places, r.done-before)
			}
			b.Events = append(b.Events, event)
			room -= len(event)
		}
	}
}

// A batch passes over passBytes of events that do not match, and goes on to do so for passTime: what it has passed over
// is then stored, and others have their turn. The time is less than an attempt may take until its subscription counts
// as one that hangs.
const (
	passBytes = 8 << 20
	passTime  = 2 * time.Second
)

// passing is how much a batch has passed over, in bytes, and when it ends.
type passing struct {
	bytes int
	until time.Time
}

func (p passing) over() bool { return p.bytes >= passBytes || time.Now().After(p.until) }

// bytes puts the next bytes into a batch, as one event.
func (r *reading) bytes(b *fsm.Batch, most int64) (last bool, err error) {
	event, err := io.ReadAll(io.LimitReader(r.in.in, most))
	if err != nil {
		return false, err
	}
	if r.done += int64(len(event)); len(event) > 0 {
		b.Events = [][]byte{event}
	}
	if _, err = r.in.in.Peek(1); errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}
