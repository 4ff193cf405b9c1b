package upstream

import (
	"bytes"
	"container/list"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"reveille/fsm"
)

const (
	// recentMax bounds one kept answer, recentSize all of them, in bytes. An answer is kept for recentIdle. A stream
	// has at most recentEach of them.
	recentMax, recentSize  = 64 << 10, 16 << 20
	recentIdle, recentEach = 10 * time.Second, 4
	// recentPaths bounds the streams that are followed, recentReaders the readers of each.
	recentPaths, recentReaders = 10_000, 32
)

// recent are the latest answers to live requests. Mostly, the watch of a stream was just shown the events to push, and
// they need not be read again. It keeps answers only for streams that are read in batches.
//
// A client may delete a stream and make another one under its name, with the same offsets. So an answer is only for
// readers that had asked for a batch before the live request was sent. By then their stream existed, so the answer is
// not from an earlier one. The first batch of each reader is read.
//
// SSE does not say what a stream consists of. Earlier reads did. From SSE, only JSON is kept: such events have no
// bounds but their own.
type recent struct {
	mu sync.Mutex
	// clock is a logical clock: it advances with each new reader.
	clock int64
	// paths are the followed streams. used orders them by when they were last read or shown, the latest first.
	paths map[string]*list.Element
	used  list.List
	size  int
	// expiry drops answers that were kept long enough; nil if none is kept. After closed is set, none is kept any more.
	expiry *time.Timer
	closed bool
}

// followed is a stream that recent follows.
type followed struct {
	path string
	// json is true if the latest read has shown a stream of JSON.
	json bool
	// readers has the newest reader at its end, answers the newest answer.
	readers []follower
	answers []*recentAnswer
}

// follower is a reader. since is when it first asked for a batch.
type follower struct {
	reader string
	since  int64
}

// recentAnswer is an answer to a long-poll, or what SSE has shown between two control events. It does not change after
// it is kept.
type recentAnswer struct {
	asked       int64
	from, next  fsm.Offset
	contentType string
	body        []byte
	at          time.Time
	// unfit is true if SSE has shown something that cannot be kept.
	unfit bool
}

// add adds the data that an SSE event shows, if it can be kept: an array of JSON. Data of several lines cannot be kept,
// because SSE does not say how the lines ended.
func (a *recentAnswer) add(e *frame) {
	n := len(e.data)
	if e.incomplete || e.lines != 1 || len(a.body)+n > recentMax || n < 2 || e.data[0] != '[' || e.data[n-1] != ']' {
		a.unfit, a.body = true, nil
	}
	if a.unfit {
		return
	}
	if len(a.body) == 0 {
		a.body = e.data
	} else if events := bytes.TrimSpace(e.data[1 : n-1]); len(events) > 0 {
		if last := len(a.body) - 1; len(bytes.TrimSpace(a.body[1:last])) > 0 {
			a.body[last] = ','
		} else {
			a.body = a.body[:last]
		}
		a.body = append(append(a.body, events...), ']')
	}
}

// keepShown keeps what SSE has shown up to an offset, if possible.
func (c *Client) keepShown(path string, a recentAnswer, next fsm.Offset) {
	if a.unfit || len(a.body) == 0 || c.known().number != nil || !c.recent.hasShownJSON(path) {
		return
	}
	a.next, a.contentType = next, "application/json"
	c.recent.keep(path, &a)
}

// reads notes what a read has shown a stream to consist of: JSON (ofJSONStream), or bytes.
func (rs *recent) reads(path string, json bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if e := rs.paths[path]; e != nil {
		e.Value.(*followed).json = json
	}
}

// isForNewer says whether a stream has readers that first asked for a batch after a live request was sent.
func (rs *recent) isForNewer(path string, asked int64) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	e := rs.paths[path]
	return e != nil && slices.ContainsFunc(e.Value.(*followed).readers, func(r follower) bool {
		return r.since > asked
	})
}

// hasShownJSON says whether the latest read has shown a stream to consist of JSON.
func (rs *recent) hasShownJSON(path string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	e := rs.paths[path]
	return e != nil && e.Value.(*followed).json
}

// asks returns the moment in which a live request is sent, and whether its answer is worth keeping.
func (rs *recent) asks(path string) (asked int64, follows bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	_, follows = rs.paths[path]
	return rs.clock, follows
}

// keep keeps an answer, and drops others beyond the bounds.
func (rs *recent) keep(path string, a *recentAnswer) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	e := rs.paths[path]
	if e == nil || rs.closed {
		return
	}
	rs.used.MoveToFront(e)
	f := e.Value.(*followed)
	if len(f.answers) == recentEach {
		rs.drop(f, 1)
	}
	a.at = time.Now()
	f.answers = append(f.answers, a)
	rs.size += len(a.body)
	for e := rs.used.Back(); rs.size > recentSize; e = e.Prev() {
		f := e.Value.(*followed)
		rs.drop(f, len(f.answers))
	}
	if rs.expiry == nil {
		rs.expiry = time.AfterFunc(recentIdle, rs.expire)
	}
}

// find returns an answer to a live request from an offset, if it was sent after the reader had asked for its first
// batch. Otherwise it returns nil.
func (rs *recent) find(reader, path string, from fsm.Offset) *recentAnswer {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	f := rs.follow(path)
	i := slices.IndexFunc(f.readers, func(r follower) bool { return r.reader == reader })
	if i < 0 {
		if len(f.readers) == recentReaders {
			f.readers = slices.Delete(f.readers, 0, 1)
		}
		rs.clock++
		f.readers = append(f.readers, follower{reader, rs.clock})
		return nil
	}
	for _, a := range f.answers {
		if a.from == from && a.asked >= f.readers[i].since {
			return a
		}
	}
	return nil
}

// follow follows a stream, in place of another one if there are too many. rs.mu is held.
func (rs *recent) follow(path string) *followed {
	if e := rs.paths[path]; e != nil {
		rs.used.MoveToFront(e)
		return e.Value.(*followed)
	}
	if rs.used.Len() == recentPaths {
		f := rs.used.Remove(rs.used.Back()).(*followed)
		rs.drop(f, len(f.answers))
		delete(rs.paths, f.path)
	}
	if rs.paths == nil {
		rs.paths = map[string]*list.Element{}
	}
	f := &followed{path: path}
	rs.paths[path] = rs.used.PushFront(f)
	return f
}

// drop drops the first n answers of a stream. rs.mu is held.
func (rs *recent) drop(f *followed, n int) {
	for _, a := range f.answers[:n] {
		rs.size -= len(a.body)
	}
	if f.answers = slices.Delete(f.answers, 0, n); len(f.answers) == 0 {
		f.answers = nil
	}
}

// expire drops the answers that were kept for long enough.
func (rs *recent) expire() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for e := rs.used.Front(); e != nil; e = e.Next() {
		f := e.Value.(*followed)
		n := 0
		for n < len(f.answers) && time.Since(f.answers[n].at) >= recentIdle {
			n++
		}
		rs.drop(f, n)
	}
	if rs.expiry = nil; rs.size > 0 && !rs.closed {
		rs.expiry = time.AfterFunc(recentIdle, rs.expire)
	}
}

func (rs *recent) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	if rs.expiry != nil {
		rs.expiry.Stop()
	}
}

// pollKept is a long-poll whose answer is kept for readers in batches. It keeps no body that takes longer than
// drainTime, or that is too long.
//
//go:noinline
func (r *liveRequest) pollKept(ctx context.Context, asked int64) error {
	c := r.client
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	a, err := c.read(own, r.conn, &r.question)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.keeps(r.from) && c.dialectOf(a.res.Header).number == nil {
		late := time.AfterFunc(drainTime, cancel)
		body, err := io.ReadAll(io.LimitReader(a.Body, recentMax+1))
		late.Stop()
		if err == nil && len(body) <= recentMax {
			c.recent.keep(r.path, &recentAnswer{
				asked: asked, from: r.from, next: a.Offset, contentType: a.res.Header.Get("Content-Type"), body: body,
			})
		}
	}
	return r.take(a.Event)
}

// keeps says whether an answer from an offset has what a read from there would show.
func (a *Answer) keeps(from fsm.Offset) bool {
	return !a.Empty && !a.Cached && a.Offset.After(from) && a.res.ContentLength <= recentMax && !endless(a.res) &&
		a.res.Header.Get("Content-Encoding") == ""
}

// fromRecent returns what a watch was shown from the offset before a position. It returns nil if the reader cannot use
// it.
func (c *Client) fromRecent(reader, path string, at fsm.Offset) *reading {
	if c.known().number != nil {
		return nil // nothing is kept
	}
	from, _ := at.Split()
	a := c.recent.find(reader, path, from)
	if a == nil {
		return nil
	}
	r := &reading{client: c, path: path, cancel: func(error) {}}
	err := r.begin(&http.Response{
		StatusCode: http.StatusOK, ContentLength: int64(len(a.body)), Body: io.NopCloser(bytes.NewReader(a.body)),
		Header: http.Header{"Content-Type": {a.contentType}, HeaderNextOffset: {a.next.Value()}},
	}, from, at)
	if err != nil {
		return nil
	}
	return r
}
