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
	// refusalsMax is on how many streams, with no success between, SSE must fail until no stream is watched by it.
	refusalsMax = 3
	// idleMax is how many answers by SSE in a row may end at once, with nothing new, until their stream is polled. At
	// once is within idleTime.
	idleMax, idleTime = 3, 50 * time.Millisecond
	// missesMax is how many appends may be missed by SSE until no stream is watched by it: a proxy may hold events
	// back. A machine that stood still can make a single one.
	missesMax = 2
)

// liveMode is how streams are watched, where that is not set: by SSE, until upstream shows that it does not do that
// well, and again after an outage, for another server may answer then.
type liveMode struct {
	mu sync.Mutex
	// polls is true if no stream is watched by SSE; told is what was logged of that.
	polls bool
	told  string
	// refused are the streams that SSE has failed for since it last succeeded, missed counts the appends that it
	// missed.
	refused map[string]struct{}
	missed  int
}

// tailing is how one stream is watched.
type tailing struct {
	// polls is true if it is not by SSE, where that is not set; idle counts the answers in a row that ended at once.
	polls bool
	idle  int
	// bySSE is true if the latest request was by SSE.
	bySSE atomic.Bool
}

// Live makes a live request: by SSE or a long-poll as Config says, otherwise by SSE where upstream does that well,
// unless the stream is read in batches. It calls take with what the answer shows: once, or as long as it goes on
// (Event.Goes). What refuses SSE is asked by a long-poll at once. The errors are those of get.
func (c *Client) Live(
	ctx context.Context, conn *Conn, path string, from fsm.Offset, cursor string, take func(Event) error,
) error {
	t := conn.tailing
	bySSE := c.cfg.TailMode == TailSSE || c.chooses() && !t.polls && !c.live.isPolling() && !c.isRead(path)
	if !bySSE {
		t.bySSE.Store(false)
		return c.Poll(ctx, conn, path, from, cursor, take)
	}
	t.bySSE.Store(true)
	began, news := time.Now(), false
	err := c.SSE(ctx, conn, path, from, cursor, func(e Event) error {
		if !news && e.Offset.After(from) && c.chooses() {
			c.live.succeeds(c.cfg.Logger)
		}
		news = news || e.Offset.After(from)
		return take(e)
	})
	switch {
	case !c.chooses() || ctx.Err() != nil:
		return err
	case isRefusal(err):
		t.polls = true
		c.live.fails(c.cfg.Logger, path)
		t.bySSE.Store(false)
		return c.Poll(ctx, conn, path, from, cursor, take)
	case err != nil:
		return err
	case news || time.Since(began) >= idleTime:
		t.idle = 0
		c.live.succeeds(c.cfg.Logger)
	default:
		if t.idle++; t.idle >= idleMax {
			t.polls = true
			c.live.fails(c.cfg.Logger, path)
		}
	}
	return nil
}

// Watching is how streams are watched: TailSSE or TailLongPoll. Single streams that are not shown by SSE are polled.
func (c *Client) Watching() string {
	if c.cfg.TailMode == TailLongPoll || c.chooses() && c.live.isPolling() {
		return TailLongPoll
	}
	return TailSSE
}

// isRead says whether a stream is read in batches. A long-poll shows what is new in one piece, as a read does; SSE
// shows event by event, which costs both sides more.
func (c *Client) isRead(path string) bool {
	_, follows := c.recent.asks(path)
	return follows
}

// chooses says whether it is not set how streams are watched.
func (c *Client) chooses() bool { return c.cfg.TailMode == "" || c.cfg.TailMode == TailAuto }

// isRefusal says whether an error means that a stream is not shown by SSE, though it may be by a long-poll.
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

// succeeds takes in that an answer by SSE has shown something new, or has waited for that.
func (l *liveMode) succeeds(log *zap.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.refused)
	if !l.polls {
		l.tell(log, "streams are watched by SSE")
	}
}

// fails takes in that a stream is not shown by SSE.
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

// misses takes in that SSE has not shown an append, and says whether streams are polled because of that from now on.
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

// begin forgets what upstream was like.
func (l *liveMode) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.polls, l.missed = false, 0
	clear(l.refused)
}

// tell logs how streams are watched if that has changed. l.mu is held.
func (l *liveMode) tell(log *zap.Logger, what string) {
	if l.told != what {
		l.told = what
		log.Info(what)
	}
}
