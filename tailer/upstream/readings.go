package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"sync"
	"time"

	"reveille/fsm"
)

const (
	// readingsMax bounds the answers that are kept open for the next batch of their readers, readingsIdle how long.
	// Over HTTP/1.1, each has a connection.
	readingsMax, readingsIdle = 64, 30 * time.Second
	// heldMax bounds the part of an event that is kept for the next batch because it did not fit, in bytes.
	heldMax = 256 << 10
)

// batchReaders are for answers that do not say how long they are, or are long.
var batchReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, batchBuffer) }}

// errFar says that a position was not reached in time. What was read up to there need not be read again.
var errFar = errors.New("the position lies far into what the server shows: the next read goes on towards it")

// reading is an answer to a read that batches consume one after the other. One goroutine at a time uses it.
type reading struct {
	client *Client
	status int
	header http.Header
	body   io.Closer
	// cancel ends the request, and with it any wait for data.
	cancel context.CancelCauseFunc
	d      *dialect
	path   string
	// from is the offset that was asked for. next is the offset that the answer leads to. If answers follow each other
	// (follow), from belongs to the first.
	from, next fsm.Offset
	// json is true if the answer is an array of messages. Otherwise it is bytes.
	json bool
	in   array
	// done is how many messages, or bytes, lie behind. over is true if they are all that there are, and a position lies
	// behind them.
	done int64
	over bool
	// before is how many messages, or bytes, lie before base. base is an offset inside the answer (edge); empty if none
	// is known.
	base   fsm.Offset
	before int64
	// reader is the reader that the answer is kept for. since is when it was kept.
	reader string
	since  time.Time
}

// open asks for what lies behind a position.
func (c *Client) open(ctx context.Context, path string, at fsm.Offset) (*reading, error) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &reading{client: c, path: path, cancel: cancel}
	defer r.within(ctx)()
	res, from, err := c.getKept(own, path, at)
	if err == nil {
		err = r.begin(res, from, at)
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if r.status == http.StatusOK {
		c.recent.reads(path, r.json)
	}
	return r, nil
}

// begin starts a reading with the answer to a read from an offset, for what lies behind a position. After an error the
// answer is closed.
func (r *reading) begin(res *http.Response, from, at fsm.Offset) (err error) {
	r.status, r.header, r.body, r.from, r.d = res.StatusCode, res.Header, res.Body, from, r.client.dialectOf(res.Header)
	if n := res.ContentLength; n >= 0 && n < batchBuffer {
		r.in.in = bufio.NewReaderSize(res.Body, int(n))
	} else {
		r.in.in = batchReaders.Get().(*bufio.Reader)
		r.in.in.Reset(res.Body)
	}
	switch r.next, err = r.d.next(r.header.Get(HeaderNextOffset)); {
	case err != nil:
	case r.next == "":
		r.next = r.from
	case r.next.Other(at):
		err = r.lacks()
	}
	if r.json = ofJSONStream(r.header); err == nil && !r.json && endless(res) {
		err = AnswerError{What: "it does not say how long it is"}
	}
	if err != nil {
		_ = res.Body.Close()
	}
	return err
}

// ofJSONStream says whether an answer is from a stream of JSON (protocol, JSON Mode).
func ofJSONStream(h http.Header) bool {
	const json = "application/json"
	contentType := h.Get("Content-Type")
	if contentType == json { // as most servers write it
		return true
	}
	mediaType, _, _ := mime.ParseMediaType(contentType)
	return mediaType == json
}

// getKept sends a read from a position. If the server does not keep that position and numbers its events, getKept reads
// from the start.
func (c *Client) getKept(
	ctx context.Context, path string, at fsm.Offset,
) (res *http.Response, from fsm.Offset, err error) {
	from, _ = at.Split()
	res, err = c.get(ctx, nil, &question{kind: kindPush, path: path, from: from})
	if errors.Is(err, ErrNotKept) && from != fsm.Start && c.known().number != nil {
		from = fsm.Start
		res, err = c.get(ctx, nil, &question{kind: kindPush, path: path, from: from})
	}
	return res, from, err
}

// endless says whether the end of an answer cannot be told from a cut connection.
func endless(res *http.Response) bool {
	return res.StatusCode != http.StatusNoContent &&
		res.ProtoMajor == 1 && res.ContentLength < 0 && len(res.TransferEncoding) == 0
}

// within makes the end of ctx end the request, until the caller calls free.
func (r *reading) within(ctx context.Context) (free func()) {
	stop := context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })
	return func() { stop() }
}

// close gives the buffer back: nothing may read from the answer any more.
func (r *reading) close() {
	_ = r.body.Close()
	r.cancel(nil)
	if r.in.in.Size() == batchBuffer {
		r.in.in.Reset(nil)
		batchReaders.Put(r.in.in)
	}
	r.in.in = nil
}

// ahead returns how far a position lies ahead in the answer. ok is false if it does not lie there.
func (r *reading) ahead(path string, at fsm.Offset) (n int64, ok bool) {
	from, n := at.Split()
	if ok = from == r.from; !ok && r.d.number != nil && r.from != fsm.Start && !from.Other(r.from) {
		n, ok = r.d.number(from)-r.d.number(r.from), true
	}
	n -= r.done
	return n, ok && n >= 0 && path == r.path
}

// batch returns the next events from a position, up to end unless that is empty. last says that the answer has no
// others. The caller may call it again after errFar, but not after any other error.
func (r *reading) batch(ctx context.Context, at, end fsm.Offset, w want) (b fsm.Batch, last bool, err error) {
	defer r.within(ctx)()
	p := passing{until: passUntil(ctx, w.passFor)}
	b = fsm.Batch{
		ContentType: r.header.Get("Content-Type"), JSON: r.json, From: at, To: r.next, Tail: r.next,
	}
	e, err := r.edge(ctx, at, end)
	switch {
	case err != nil:
		return b, false, err
	case e.base != "" && e.n <= 0:
		return e.behind(b, end), true, nil
	}
	// If a server with numbers answers from the start, the whole answer shows where the position is (number).
	if n, ok := r.ahead(r.path, at); ok {
		if err := r.skip(ctx, n); err != nil {
			return b, false, err
		}
	}
	before, bytes, upto := r.done, int64(fsm.MaxDeliveryBytes), int64(math.MaxInt64)
	if e.bounded {
		bytes, upto = min(bytes, e.n), before+e.n
	}
	if w.span > 0 {
		bytes, upto = min(bytes, w.span), min(upto, before+w.span)
	}
	switch {
	case r.status == http.StatusNoContent:
		last = true
	case r.json:
		last, err = r.messages(&b, w, upto, p)
	default:
		last, err = r.bytes(&b, bytes)
	}
	switch {
	case err != nil:
	case r.done > 0 && !r.next.After(r.from):
		err = AnswerError{What: "it has data, and its next offset is not beyond it"}
	case r.d.number != nil && r.json:
		last, err = r.number(&b, end, before, last)
		b.Within = b.To // each event has a number of its own
	case e.base != "" && r.done-before == e.n:
		b.To, b.Within, last = e.base, e.base, true
	case e.base != "" && last:
		err = errShrunk
	default:
		b.Within = r.from.At(r.done, r.next)
		if !last {
			b.To = b.Within
		}
	}
	if err == nil && end != "" {
		err = r.missing(b, at, end)
	}
	if ctx.Err() != nil { // the request has ended, too, or is about to
		err = context.Cause(ctx)
	}
	return b, last, err
}

// missing returns the error of an answer that has nothing of what lay between a position and an end. A batch without
// events may also lead to those that are kept.
func (r *reading) missing(b fsm.Batch, at, end fsm.Offset) error {
	switch {
	case r.next.Other(end):
		return r.lacks()
	case len(b.Events) > 0 || b.Passed > 0 || b.TooLarge || b.TooDeep:
		return nil
	case !end.After(b.Within): // the first event that is kept lies behind end
		return errLost
	case !b.Within.After(at):
		r.over = true
		return r.lacks()
	}
	return nil
}

// lacks returns the error of an answer without the events that existed before. They are lost if no cache gave the
// answer, and the answer shows all that there is. Otherwise a newer answer may show them.
func (r *reading) lacks() error {
	if isCached(r.header) || !isTrue(r.header.Get(HeaderUpToDate)) {
		return ErrNotKept
	}
	return errLost
}

// skip passes over what lies before a position. It stops early enough for the next call to continue.
func (r *reading) skip(ctx context.Context, n int64) error {
	if n > 0 && r.status == http.StatusNoContent {
		r.over = true
		return errShrunk
	}
	until, bounded := early(ctx)
	for passed := false; n > 0; passed = true {
		if bounded && passed && time.Now().After(until) {
			return errFar
		}
		some, err := r.pass(n)
		if err != nil {
			return err
		}
		r.done, n = r.done+some, n-some
	}
	return nil
}

// early returns a time that leaves enough time until the end of ctx for work under way to end in order.
func early(ctx context.Context) (until time.Time, bounded bool) {
	deadline, bounded := ctx.Deadline()
	return time.Now().Add(time.Until(deadline) * 3 / 4), bounded
}

// passUntil returns when a batch that begins now stops passing over events.
func passUntil(ctx context.Context, most time.Duration) time.Time {
	until := time.Now().Add(most)
	if soon, bounded := early(ctx); bounded && soon.Before(until) {
		return soon
	}
	return until
}

// pass passes over one message, or some of n bytes.
func (r *reading) pass(n int64) (passed int64, err error) {
	if !r.json {
		switch passed, err = io.CopyN(io.Discard, r.in.in, min(n, batchBuffer)); {
		case errors.Is(err, io.EOF) && passed == 0:
			r.over = true
			return 0, errShrunk
		case err != nil && !errors.Is(err, io.EOF):
			return 0, err
		}
		return passed, nil
	}
	switch more, err := r.in.more(); {
	case err != nil:
		return 0, err
	case !more:
		r.over = true
		return 0, errShrunk
	}
	return 1, r.in.skip()
}

// number gives the events of a batch their numbers, which identify them from then on. The first events that a server
// keeps change, so positions that count from them mean nothing later. An answer is from the start if the server keeps
// no earlier position, or if the reader begins there. Only its end shows the numbers, so number reads up to the end.
// before is how many events of the answer lie before the batch.
func (r *reading) number(b *fsm.Batch, end fsm.Offset, before int64, last bool) (bool, error) {
	at, first := b.From, r.d.number(r.from)+before
	to := first + r.done - before
	if r.from == fsm.Start {
		var rest int64
		if !last {
			var err error
			if rest, err = r.in.rest(); err != nil {
				return false, err
			}
		}
		to = r.d.number(r.next) - rest
		first = to - (r.done - before)
	}
	if !last {
		b.To = r.d.numbered(r.next.Incarnation(), to)
	}
	b.From = fsm.Start.At(first, r.next)
	if r.from == fsm.Start {
		lost := first - r.d.number(at)
		switch {
		case at != fsm.Start && !r.next.After(at): // the stream has expired
			return false, r.lacks()
		case at != fsm.Start && lost < 0: // the server stops
			return false, ErrNotKept
		case lost > 0:
			b.Events, b.Places, b.Passed, b.TooLarge, b.TooDeep = nil, nil, 0, false, false
			b.To = r.d.numbered(r.next.Incarnation(), first)
			// A reader from the start has not lost the events that the server dropped before.
			if at != fsm.Start && (end == "" || end.After(b.To)) {
				b.NotKept, b.Lost = end != "", lost
			}
		}
	}
	return last || r.from == fsm.Start, nil
}

// readings are answers that are kept open, so that the next batch of a reader can continue where the last one ended.
// Some servers show all of a stream in one answer, and a position in it can only be found by reading what lies before.
// Of each answer, no more has arrived than the buffers hold.
type readings struct {
	mu sync.Mutex
	// kept has the most recently used answer at its end.
	kept []*reading
	// expiry closes answers that were kept too long; nil if none is kept. After closed is set, none is kept any more.
	expiry *time.Timer
	closed bool
}

// take returns the answer that is kept for a reader; nil if there is none.
func (rs *readings) take(reader string) *reading {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	i := slices.IndexFunc(rs.kept, func(r *reading) bool { return r.reader == reader })
	if i < 0 {
		return nil
	}
	r := rs.kept[i]
	rs.kept = slices.Delete(rs.kept, i, i+1)
	return r
}

// keep keeps an answer for a reader, in place of any other of that reader. If there are too many, it closes the answer
// that was idle longest.
func (rs *readings) keep(reader string, r *reading) {
	if other := rs.take(reader); other != nil {
		other.close()
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.closed || len(r.in.held) > heldMax {
		r.close()
		return
	}
	r.reader, r.since = reader, time.Now()
	rs.kept = append(rs.kept, r)
	if len(rs.kept) > readingsMax {
		rs.kept[0].close()
		rs.kept = slices.Delete(rs.kept, 0, 1)
	}
	if rs.expiry == nil {
		rs.expiry = time.AfterFunc(readingsIdle, rs.expire)
	}
}

// expire closes answers that were kept too long.
func (rs *readings) expire() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.drop(readingsIdle)
	if rs.expiry = nil; len(rs.kept) > 0 {
		rs.expiry = time.AfterFunc(readingsIdle-time.Since(rs.kept[0].since), rs.expire)
	}
}

// close closes all answers that are kept. An answer in use is closed when its user is done with it.
func (rs *readings) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	rs.drop(0)
	if rs.expiry != nil {
		rs.expiry.Stop()
	}
}

// drop closes answers that have been idle for at least this long. rs.mu is held.
func (rs *readings) drop(idle time.Duration) {
	n := 0
	for ; n < len(rs.kept) && time.Since(rs.kept[n].since) >= idle; n++ {
		rs.kept[n].close()
	}
	rs.kept = slices.Delete(rs.kept, 0, n)
}
