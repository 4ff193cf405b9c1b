// Package anycable is a stream server that behaves as AnyCable 1.6 was seen to, its errors and gaps too, for tests:
// what it keeps is bounded, its broker can be restarted in another epoch, every name is a stream, and its reads may be
// cached.
package anycable

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// readLimit is how many events one answer holds at most, cursorInterval how long a cursor is the same.
const (
	readLimit      = 100
	cursorInterval = 20 * time.Second
)

// Options of a Server. The zero value is a server as it comes, public.
type Options struct {
	// History is how many events of a stream are kept; 100 if zero.
	History int
	// Poll is how long a long-poll waits; 10 s if zero.
	Poll time.Duration
	// Secret has every stream need a signed name, Bearer every request a token.
	Secret, Bearer string
	// HeadSaysNow has a HEAD not look for the tail, as older versions do.
	HeadSaysNow bool
}

// Server is an http.Handler, with its streams below /ds.
type Server struct {
	opts Options
	// Lost counts the reads from offsets that are not kept, Refused those that were not allowed.
	Lost, Refused atomic.Int64

	mu      sync.Mutex
	epoch   string
	epochs  int
	streams map[string]*stream
	// changed is closed at each event, at a restart and at a shutdown.
	changed chan struct{}
	down    bool
}

type stream struct {
	// last is the number of the latest event, events those that are kept.
	last   int
	events []string
}

// low is the number of the first event that is kept.
func (s *stream) low() int { return s.last - len(s.events) + 1 }

// New returns a Server without streams.
func New(opts Options) *Server {
	if opts.History == 0 {
		opts.History = 100
	}
	if opts.Poll == 0 {
		opts.Poll = 10 * time.Second
	}
	s := &Server{opts: opts, changed: make(chan struct{})}
	s.restart()
	return s
}

// restart forgets everything. s.mu is held, or s is new.
func (s *Server) restart() {
	s.epochs++
	// A later epoch does not sort after an earlier one.
	s.epoch, s.streams, s.down = fmt.Sprintf("%c%03d", 'z'-rune(s.epochs), s.epochs), map[string]*stream{}, false
}

func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Restart has the broker begin anew, with nothing kept, in another epoch. Long-polls under way are answered as at a
// shutdown.
func (s *Server) Restart() {
	s.change(func() { s.down = true })
	s.change(s.restart)
}

// Expire has the broker forget a stream that has been silent for too long: it counts anew in the same epoch.
func (s *Server) Expire(name string) { s.change(func() { delete(s.streams, name) }) }

// Publish appends events, which are JSON, and returns the offset of the last.
func (s *Server) Publish(name string, events ...string) (offset string) {
	s.change(func() {
		st := s.streams[name]
		if st == nil {
			st = &stream{}
			s.streams[name] = st
		}
		st.last += len(events)
		st.events = append(st.events, events...)
		st.events = st.events[max(0, len(st.events)-s.opts.History):]
		offset = s.encode(st.last)
	})
	return offset
}

// encode is "0" before the first event. s.mu is held.
func (s *Server) encode(n int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d::%s", n, s.epoch)
}

// Signed is a signed stream name.
func Signed(secret, name string) string {
	quoted, _ := json.Marshal(name)
	text := base64.StdEncoding.EncodeToString(quoted)
	return text + "--" + sign(secret, text)
}

func sign(secret, text string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// allowed says whether a request may read a stream.
func (s *Server) allowed(r *http.Request, name string) bool {
	if s.opts.Bearer != "" && r.Header.Get("Authorization") != "Bearer "+s.opts.Bearer {
		return false
	}
	if s.opts.Secret == "" {
		return true
	}
	signed := r.URL.Query().Get("signed")
	if signed == "" {
		signed = r.Header.Get("X-Signed")
	}
	text, mac, _ := strings.Cut(signed, "--")
	quoted, err := base64.StdEncoding.DecodeString(text)
	var of string
	return err == nil && mac == sign(s.opts.Secret, text) && json.Unmarshal(quoted, &of) == nil && of == name
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, found := strings.CutPrefix(r.URL.Path, "/ds/")
	if !found || name == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("X-AnyCable-Version", "1.6.0-like")
	q := r.URL.Query()
	live, offset := q.Get("live"), q.Get("offset")
	switch {
	case live != "" && live != "long-poll" && live != "sse", live != "" && offset == "", !wellFormed(offset):
		w.WriteHeader(http.StatusBadRequest)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case !s.allowed(r, name):
		s.Refused.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodHead:
		s.head(w, name)
	case live == "sse":
		s.sse(w, r, name, offset)
	default:
		s.read(w, r, name, offset, live != "")
	}
}

func wellFormed(offset string) bool {
	switch offset {
	case "", "0", "-1", "now":
		return true
	}
	number, epoch, found := strings.Cut(offset, "::")
	_, err := strconv.ParseUint(number, 10, 64)
	return found && epoch != "" && err == nil
}

func (s *Server) head(w http.ResponseWriter, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	tail := "now"
	if !s.opts.HeadSaysNow {
		tail = s.tail(name)
	}
	w.Header().Set("Stream-Next-Offset", tail)
}

// tail is the offset of the last event. s.mu is held.
func (s *Server) tail(name string) string {
	if st := s.streams[name]; st != nil {
		return s.encode(st.last)
	}
	return "0"
}

// history returns what lies beyond an offset, and where that leads to. ok is false if the offset is not kept.
func (s *Server) history(name, offset string) (events []string, next string, changed <-chan struct{}, down, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[name]
	from := 0
	switch offset {
	case "", "0", "-1":
		if st == nil {
			return nil, offset, s.changed, s.down, true
		}
		from = st.low() - 1
	case "now":
		return nil, s.tail(name), s.changed, s.down, true
	default:
		number, epoch, _ := strings.Cut(offset, "::")
		from, _ = strconv.Atoi(number)
		if epoch != s.epoch || st == nil || from < st.low() {
			return nil, "", nil, s.down, false
		}
	}
	events = st.events[min(len(st.events), from-st.low()+1):]
	events = events[:min(len(events), readLimit)]
	if len(events) == 0 {
		return nil, offset, s.changed, s.down, true
	}
	return events, s.encode(from + len(events)), s.changed, s.down, true
}

// isEpoch says whether an offset is of the present epoch.
func (s *Server) isEpoch(offset string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, epoch, _ := strings.Cut(offset, "::")
	return epoch == s.epoch
}

func cursor(r *http.Request) string {
	now := time.Now().Unix() / int64(cursorInterval/time.Second)
	if theirs, err := strconv.ParseInt(r.URL.Query().Get("cursor"), 10, 64); err == nil && theirs >= now {
		now = theirs + 1
	}
	return strconv.FormatInt(now, 10)
}

func (s *Server) read(w http.ResponseWriter, r *http.Request, name, offset string, live bool) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "public, max-age=60, stale-while-revalidate=300")
	h.Set("Stream-Cursor", cursor(r))
	over := time.NewTimer(s.opts.Poll)
	defer over.Stop()
	for first := true; ; first = false {
		events, next, changed, down, ok := s.history(name, offset)
		if !ok && !first && s.isEpoch(offset) { // the stream has expired; what waits gets the next event of that name
			offset = "-1"
			events, next, changed, down, ok = s.history(name, offset)
		}
		switch {
		case !ok || down:
			s.Lost.Add(1)
			w.WriteHeader(http.StatusGone)
			return
		case len(events) > 0 || !live:
			h.Set("Stream-Next-Offset", next)
			if len(events) < readLimit {
				h.Set("Stream-Up-To-Date", "true")
			}
			_, _ = fmt.Fprintf(w, "[%s]", strings.Join(events, ","))
			return
		}
		select {
		case <-changed:
		case <-over.C:
			w.WriteHeader(http.StatusNoContent)
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) sse(w http.ResponseWriter, r *http.Request, name, offset string) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "private, no-cache, no-store, must-revalidate, max-age=0")
	over := time.NewTimer(6 * s.opts.Poll)
	defer over.Stop()
	for first := true; ; first = false {
		events, next, changed, down, ok := s.history(name, offset)
		switch {
		case !ok && first:
			s.Lost.Add(1)
			w.WriteHeader(http.StatusGone)
			return
		case !ok || down:
			return
		}
		if len(events) > 0 {
			_, _ = fmt.Fprintf(w, "event: data\ndata:[%s]\n\n", strings.Join(events, ","))
			offset = next
		}
		if len(events) > 0 || first {
			_, _ = fmt.Fprintf(w, "event: control\n"+
				"data:{\"streamNextOffset\":%q,\"streamCursor\":%q,\"upToDate\":true}\n\n", next, cursor(r))
			w.(http.Flusher).Flush()
		}
		if len(events) == readLimit {
			continue
		}
		select {
		case <-changed:
		case <-over.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}
