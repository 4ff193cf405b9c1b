package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"reveille/fsm"
)

// The ways to watch streams that Config takes.
const (
	TailAuto     = "auto"
	TailLongPoll = "long-poll"
	TailSSE      = "sse"
)

const (
	// refusalsMax is on how many streams SSE must fail, with no success between, before no stream is watched by it.
	refusalsMax = 3
	// idleMax is how many SSE answers in a row may end at once, with nothing new, before their stream is polled. At
	// once means within idleTime.
	idleMax, idleTime = 3, 50 * time.Millisecond
	// missesMax is how many appends SSE may miss before no stream is watched by it. A proxy may hold events back. A
	// host that stood still can cause a single miss.
	missesMax = 2
)

// liveMode is how streams are watched if no setting says so. That is SSE, until upstream shows that it does not do SSE
// well. After an outage it is SSE again, because another server may answer then.
type liveMode struct {
	mu sync.Mutex
	// polls is true if no stream is watched by SSE. told is the last log line about that.
	polls bool
	told  string
	// refused are the streams that SSE has failed for since it last succeeded. missed counts the appends that SSE
	// missed.
	refused map[string]struct{}
	missed  int
}

// tailing is how one stream is watched.
type tailing struct {
	// polls is true if long-polls watch the stream although no setting says so. idle counts the answers in a row that
	// ended at once.
	polls bool
	idle  int
	// bySSE is true if the latest request was by SSE.
	bySSE atomic.Bool
}

// Live makes a live request: by SSE or a long-poll, as Config says. With TailAuto, it uses SSE where upstream does that
// well, unless the stream is read in batches. It calls take with what the answer shows: once, or as long as the answer
// goes on (Event.Goes). After a refusal of SSE it makes a long-poll at once. It returns the errors of get.
func (c *Client) Live(
	ctx context.Context, conn *Conn, path string, from fsm.Offset, cursor string, take func(Event) error,
) error {
	r := &liveRequest{client: c, conn: conn, take: take, question: question{
		kind: kindTail, path: path, from: from, cursor: cursor,
	}}
	if c.usesSSE(conn.tailing, path) {
		if err := r.sse(ctx); !r.refused(ctx, err) {
			return err
		}
	}
	return r.poll(ctx)
}

// usesSSE says whether the next request for a stream is by SSE.
//
//go:noinline
func (c *Client) usesSSE(t *tailing, path string) bool {
	bySSE := c.cfg.TailMode == TailSSE || c.chooses() && !t.polls && !c.live.isPolling() && !c.isRead(path)
	t.bySSE.Store(bySSE)
	return bySSE
}

// liveRequest is a live request. It is on the heap: its stack is what a silent stream costs most.
type liveRequest struct {
	question
	client *Client
	conn   *Conn
	take   func(Event) error
	// news is true once an answer by SSE has shown something new.
	news bool
}

// heard passes on what an answer by SSE shows.
func (r *liveRequest) heard(e Event) error {
	if c := r.client; e.Offset.After(r.from) {
		if !r.news && c.chooses() {
			c.live.succeeds(c.cfg.Logger)
		}
		r.news = true
	}
	return r.take(e)
}

// refused notes how well the request went. It says whether the stream is to be polled at once.
//
//go:noinline
func (r *liveRequest) refused(ctx context.Context, err error) bool {
	c, t := r.client, r.conn.tailing
	switch {
	case !c.chooses() || ctx.Err() != nil:
	case isRefusal(err):
		t.polls = true
		c.live.fails(c.cfg.Logger, r.path)
		t.bySSE.Store(false)
		return true
	case err != nil:
	case r.news || time.Since(r.began) >= c.atOnce:
		t.idle = 0
		c.live.succeeds(c.cfg.Logger)
	default:
		if t.idle++; t.idle >= idleMax {
			t.polls = true
			c.live.fails(c.cfg.Logger, r.path)
		}
	}
	return false
}

// Watching returns how streams are watched: TailSSE or TailLongPoll. Single streams that SSE does not show are polled.
func (c *Client) Watching() string {
	if c.cfg.TailMode == TailLongPoll || c.chooses() && c.live.isPolling() {
		return TailLongPoll
	}
	return TailSSE
}

// isRead says whether a stream is read in batches. A long-poll shows new events in one piece, as a read does. SSE shows
// event by event, which costs both sides more.
func (c *Client) isRead(path string) bool {
	_, follows := c.recent.asks(path)
	return follows
}

// chooses says whether Reveille chooses how streams are watched, because no setting does.
func (c *Client) chooses() bool { return c.cfg.TailMode == "" || c.cfg.TailMode == TailAuto }

// isRefusal says whether an error means that SSE does not show a stream. A long-poll may still show it.
func isRefusal(err error) bool {
	var a AnswerError
	switch {
	case errors.Is(err, errNoSSE):
		return true
	case !errors.As(err, &a):
		return false
	}
	switch a.Status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusUnsupportedMediaType, http.StatusNotImplemented:
		return true
	}
	return false
}

func (l *liveMode) isPolling() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.polls
}

// succeeds notes that an SSE answer has shown something new, or has waited for it.
func (l *liveMode) succeeds(log *zap.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.refused)
	if !l.polls {
		l.tell(log, "streams are watched by SSE")
	}
}

// fails notes that SSE does not show a stream.
func (l *liveMode) fails(log *zap.Logger, path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == nil {
		l.refused = map[string]struct{}{}
	}
	if l.refused[path] = struct{}{}; len(l.refused) >= refusalsMax {
		l.polls = true
		l.tell(log, "streams are watched by long-polls: the stream server does not show them by SSE")
	}
}

// misses notes that SSE has not shown an append. It says whether that makes Reveille poll all streams from now on.
func (l *liveMode) misses(log *zap.Logger) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed++; l.polls || l.missed < missesMax {
		return false
	}
	l.polls = true
	l.tell(log, "streams are watched by long-polls: by SSE the stream server, or what is before it, shows events late")
	return true
}

// begin forgets what upstream was like before.
func (l *liveMode) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.polls, l.missed = false, 0
	clear(l.refused)
}

// tell logs how streams are watched, if that has changed. l.mu is held.
func (l *liveMode) tell(log *zap.Logger, what string) {
	if l.told != what {
		l.told = what
		log.Info(what)
	}
}
