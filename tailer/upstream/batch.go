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

// batchBuffer is the size of the buffer for an answer, in bytes.
const batchBuffer = 32 << 10

// ReadBatch returns the next events of a stream from a position. The parameter events bounds their number. None lies
// behind end, unless end is empty. Together they have at most fsm.MaxDeliveryBytes. ReadBatch keeps nothing else that
// the server shows, and stops reading once the batch is full.
//
// The server's answer stays open for a while. The reader's next batch continues it, if it starts where this one ended.
// The answer shows the stream as it was at the request. So another stream under the same name needs another reader. To
// reach any other position, ReadBatch reads from the offset before it. If ctx ends first, the next call asks again. It
// may then find that more was read in the meantime.
//
// An end counts from an offset that an earlier answer led to. The server may now show more in one answer. Then other
// reads find how much of it lies before that offset, and the batch still ends there. The server may also show less in
// one answer than before. Then the answer that follows is read as a part of it.
//
// If matches is not nil, the batch has only the JSON events that match. ReadBatch passes over the others, as passBytes
// and passTime allow. If none matches, the batch has no event, and To is how far ReadBatch came. It does not pass over
// an event that is too large or too deep, because matches cannot judge it. matches does not apply to bytes.
//
// If span is not 0, an earlier attempt had a batch from the same position with that Span. ReadBatch then looks at no
// more of the stream, whatever matches accepts now. What lies behind had no attempt.
//
// ReadBatch does not ask again for what a watch of the stream was just shown (recent). If it reads events again (span),
// it does ask: the earlier attempt may have had more.
//
// A server that numbers its events may no longer keep those behind the position. Then the batch has no events and leads
// to the first one that is kept. That one had no attempt, whatever became of the lost ones.
//
// What lies before an end existed. The server may show that it keeps nothing of it, or not the first of it. Then the
// batch says so (NotKept): those events do not come again.
//
// ReadBatch returns the errors of get. ErrNotKept also says that the stream has another incarnation now, or has nothing
// behind the position. An answer that is cut short is an error, not a shorter batch.
func (c *Client) ReadBatch(
	ctx context.Context, reader, path string, at, end fsm.Offset, events int, span int64, matches func([]byte) bool,
) (fsm.Batch, error) {
	b, err := c.readBatch(ctx, reader, path, at, end, want{events, span, matches, c.passTime})
	if end != "" && (errors.Is(err, errLost) || errors.Is(err, errGoneThere) && c.has(ctx, path)) {
		return c.lost(at, end), nil
	}
	return b, err
}

// want is what a batch may have: at most so many events, and only matching ones, unless matches is nil. If span is not
// 0, the events are read again, and exactly that many events, or bytes, are looked at.
type want struct {
	events  int
	span    int64
	matches func([]byte) bool
	// passFor is the longest time to pass over events.
	passFor time.Duration
}

func (c *Client) readBatch(
	ctx context.Context, reader, path string, at, end fsm.Offset, w want,
) (b fsm.Batch, err error) {
	if r := c.readings.take(reader); r != nil {
		if _, ok := r.ahead(path, at); !ok {
			r.close()
		} else if b, err = c.readOn(ctx, reader, r, at, end, w); err == nil || again(ctx, err) {
			return b, err
		} // otherwise ask again: it may have been cut while it was kept
	}
	if w.span == 0 {
		if r := c.fromRecent(reader, path, at); r != nil {
			// Otherwise ask the server: newer events may lie behind it, or it is wrong.
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

// errLost says that an answer keeps nothing of what lay behind a position.
var errLost = fmt.Errorf("%w, nor what followed it", ErrNotKept)

// has says whether a HEAD shows that the stream exists.
func (c *Client) has(ctx context.Context, path string) bool {
	info, err := c.Head(ctx, path)
	return err == nil && info.Exists
}

// lost returns the batch between a position and an end, if the server keeps nothing of that part.
func (c *Client) lost(at, end fsm.Offset) fsm.Batch {
	b := fsm.Batch{From: at, To: end, Within: end, NotKept: true}
	if d := c.known(); d.number != nil {
		from, n := at.Split()
		b.From = fsm.Start.At(d.number(from)+n, end)
	}
	return b
}

// again says whether the next call continues after an error.
func again(ctx context.Context, err error) bool { return ctx.Err() != nil || errors.Is(err, errFar) }

// readOn reads a batch from an answer. It keeps the answer if there is more to read.
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

// errShrunk says that an answer shows less than there was before. The stream is not what it was.
var errShrunk = AnswerError{What: "it ends before the position that the events before were read up to"}

// messages puts the next messages into a batch, until upto messages of the answer are read. last says that no other
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
		case !whole && r.done > before: // leave it to the next batch
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

// A batch passes over up to passBytes of events that do not match, for up to passTime. Then the place is stored, and
// others have their turn. passTime is less than an attempt may take before its subscription counts as hanging.
const (
	passBytes = 8 << 20
	passTime  = 2 * time.Second
)

// passing is how many bytes a batch has passed over, and when it must stop.
type passing struct {
	bytes int
	until time.Time
}

func (p passing) over() bool { return p.bytes >= passBytes || time.Now().After(p.until) }

// bytes puts the next bytes, at most this many, into a batch as one event.
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
