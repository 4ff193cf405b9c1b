package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reveille/fsm"
)

// asked has the live requests that a server has got.
type asked struct {
	mu    sync.Mutex
	modes []string
}

// take returns those that came since the last call, by their values of live.
func (a *asked) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.modes = nil }()
	return strings.Join(a.modes, " ")
}

// liveClient returns a client of a server that answers long-polls with an event, and SSE as it is told to.
func liveClient(t *testing.T, mode string, sse http.HandlerFunc) (*Client, *asked) {
	t.Helper()
	a := &asked{}
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		live := r.URL.Query().Get("live")
		a.mu.Lock()
		a.modes = append(a.modes, live)
		a.mu.Unlock()
		if live == "sse" {
			sse(w, r)
			return
		}
		shown("application/json", "9", "[1]")(w, r)
	}, "", nil)
	c.cfg.TailMode, c.atOnce = mode, time.Hour // a crowded machine is slow
	return c, a
}

// events answers by SSE with a text.
func events(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, text)
	}
}

func status(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(n) }
}

// live makes a live request and returns the offsets that it shows.
func live(c *Client, conn *Conn, path string) (offsets []fsm.Offset, err error) {
	err = c.Live(context.Background(), conn, path, "1", "", func(e Event) error {
		offsets = append(offsets, e.Offset)
		return nil
	})
	return offsets, err
}

const (
	news    = "event: control\ndata: {\"streamNextOffset\":\"9\",\"upToDate\":true}\n\n"
	nothing = "event: control\ndata: {\"streamNextOffset\":\"1\",\"upToDate\":true}\n\n"
)

// TestWhatRefusesSSEIsPolled holds it for a stream: it is shown by a long-poll at once, and ever after.
func TestWhatRefusesSSEIsPolled(t *testing.T) {
	for name, c := range map[string]struct {
		sse http.HandlerFunc
		// first and next are what the first live request asks for, and the one after it.
		first, next string
		fails       bool
	}{
		"events":              {sse: events(news), first: "sse", next: "sse"},
		"cut after an event":  {sse: cutAfter(news), first: "sse", next: "sse"},
		"cut before an event": {sse: cutAfter("event: control\nda"), first: "sse", next: "sse", fails: true},
		"400":                 {sse: status(400), first: "sse long-poll", next: "long-poll"},
		"405":                 {sse: status(405), first: "sse long-poll", next: "long-poll"},
		"406":                 {sse: status(406), first: "sse long-poll", next: "long-poll"},
		"415":                 {sse: status(415), first: "sse long-poll", next: "long-poll"},
		"501":                 {sse: status(501), first: "sse long-poll", next: "long-poll"},
		"no content":          {sse: status(204), first: "sse long-poll", next: "long-poll"},
		"another type":        {sse: shown("application/json", "9", "[1]"), first: "sse long-poll", next: "long-poll"},
		"500":                 {sse: status(500), first: "sse", next: "sse", fails: true},
		"503":                 {sse: status(503), first: "sse", next: "sse", fails: true},
		"403":                 {sse: status(403), first: "sse", next: "sse", fails: true},
		"404":                 {sse: status(404), first: "sse", next: "sse", fails: true},
		"no JSON":             {sse: events("event: control\ndata: x\n\n"), first: "sse", next: "sse", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			client, asked := liveClient(t, TailAuto, c.sse)
			conn := client.NewConn()
			defer conn.Close()
			offsets, err := live(client, &conn, "/a")
			if (err != nil) != c.fails || !c.fails && !slices.Equal(offsets, []fsm.Offset{"9"}) {
				t.Errorf("it shows %q, %v", offsets, err)
			}
			if got := asked.take(); got != c.first {
				t.Errorf("the first asks for %q, want %q", got, c.first)
			}
			_, _ = live(client, &conn, "/a")
			if got := asked.take(); got != c.next {
				t.Errorf("the next asks for %q, want %q", got, c.next)
			}
			other := client.NewConn()
			defer other.Close()
			if _, _ = live(client, &other, "/b"); !strings.HasPrefix(asked.take(), "sse") {
				t.Error("one stream speaks for another")
			}
		})
	}
}

// cutAfter answers by SSE with a text, and cuts the connection then.
func cutAfter(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		events(text)(w, r)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// TestAnUpstreamWithoutSSEIsNotAskedForIt holds what must happen until no stream of an upstream is watched by SSE, and
// that an outage ends that.
func TestAnUpstreamWithoutSSEIsNotAskedForIt(t *testing.T) {
	for name, c := range map[string]struct {
		sse http.HandlerFunc
		// before is what happens, of which path n is one.
		before func(c *Client, conn *Conn, path string)
		times  int
		polls  bool
	}{
		"streams that refuse":     {status(405), ask, refusalsMax, true},
		"fewer streams":           {status(405), ask, refusalsMax - 1, false},
		"streams that end":        {events(nothing), thrice, refusalsMax, true},
		"streams with events":     {events(news), thrice, refusalsMax, false},
		"appends that are missed": {events(news), miss, missesMax, true},
		"a single one":            {events(news), miss, missesMax - 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			client, asked := liveClient(t, TailAuto, c.sse)
			h := client.NewHealth(Backoff{}, 0, func() {})
			for n := range c.times {
				conn := client.NewConn()
				c.before(client, &conn, fmt.Sprint("/", n))
				conn.Close()
			}
			another := func() string {
				t.Helper()
				asked.take()
				conn := client.NewConn()
				defer conn.Close()
				_, _ = live(client, &conn, "/another")
				mode, _, _ := strings.Cut(asked.take(), " ")
				return mode
			}
			want := map[bool]string{true: "long-poll", false: "sse"}[c.polls]
			if got := another(); got != want {
				t.Errorf("another stream is watched by %q, want %q", got, want)
			}
			for _, path := range []string{"/a", "/b", "/c"} {
				h.Report(path, h.Spell(), AnswerError{Status: 503})
			}
			h.Report("/a", h.Spell(), nil)
			if got := another(); got != "sse" {
				t.Errorf("after an outage it is watched by %q", got)
			}
		})
	}
}

func ask(c *Client, conn *Conn, path string) { _, _ = live(c, conn, path) }

func thrice(c *Client, conn *Conn, path string) {
	for range idleMax {
		ask(c, conn, path)
	}
}

func miss(c *Client, conn *Conn, path string) {
	ask(c, conn, path)
	(&Health{client: c}).Missed(conn)
}

// TestAModeThatIsSetIsKept holds that nothing else is tried then.
func TestAModeThatIsSetIsKept(t *testing.T) {
	for mode, sse := range map[string]http.HandlerFunc{TailSSE: status(405), TailLongPoll: events(news)} {
		t.Run(mode, func(t *testing.T) {
			client, asked := liveClient(t, mode, sse)
			conn := client.NewConn()
			defer conn.Close()
			for range refusalsMax + 1 {
				_, err := live(client, &conn, "/a")
				if got := asked.take(); got != mode || (err != nil) != (mode == TailSSE) {
					t.Errorf("it asked for %q: %v", got, err)
				}
				(&Health{client: client}).Missed(&conn)
			}
		})
	}
}

// TestAnUpstreamThatEndsAtOnceIsPolledFromTheThirdTimeOn holds it for a single stream, and that an answer with news
// begins the count anew.
func TestAnUpstreamThatEndsAtOnceIsPolledFromTheThirdTimeOn(t *testing.T) {
	text := nothing
	client, asked := liveClient(t, TailAuto, func(w http.ResponseWriter, r *http.Request) { events(text)(w, r) })
	conn := client.NewConn()
	defer conn.Close()
	for _, text = range []string{nothing, nothing, news, nothing, nothing, nothing} {
		if _, err := live(client, &conn, "/a"); err != nil || asked.take() != "sse" {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := live(client, &conn, "/a"); err != nil || asked.take() != "long-poll" {
		t.Errorf("it is not polled: %v", err)
	}
}

// TestWhatSSEHasShownIsWhatIsAskedFor holds that a batch of what SSE has shown is the one that a read would show,
// however the server parts it; and that what cannot be told from SSE is read.
func TestWhatSSEHasShownIsWhatIsAskedFor(t *testing.T) {
	var body, sse string
	contentType, reads := "", 0
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("live") == "sse" {
			events(sse)(w, r)
			return
		}
		reads++
		shown(contentType, "9", body)(w, r)
	}, "", nil)
	c.cfg.TailMode = TailSSE
	readers, spared := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		readers++
		reader, fresh := fmt.Sprint("r", readers), fmt.Sprint("fresh", readers)
		var parts, messages []string
		sse = rapid.SampledFrom([]string{"", ": a comment\n\n"}).Draw(rt, "before")
		size := 2
		for range rapid.IntRange(1, 6).Draw(rt, "data events") {
			var texts []string
			for _, m := range rapid.SliceOfN(valuesOfJSON(), 0, 4).Draw(rt, "messages") {
				text, err := json.Marshal(m)
				if err != nil {
					rt.Fatal(err)
				}
				texts = append(texts, string(text))
				size += len(text) + 1
			}
			messages = append(messages, texts...)
			parts = append(parts, "["+strings.Join(texts, ",")+"]")
		}
		// What is odd: several lines of data, or no array, as of a stream of text.
		odd := rapid.SampledFrom([]string{"", "", "", "lines", "no array", "text"}).Draw(rt, "odd")
		for i, part := range parts {
			switch {
			case odd == "lines" && i == 0:
				part = "[\ndata:" + part[1:]
			case odd == "no array" && i == 0:
				part = "1"
			}
			sse += "event: data\ndata:" + part + "\n\n"
		}
		sse += news
		contentType, body = "application/json", "["+strings.Join(messages, ",")+"]"
		if odd == "text" {
			contentType = "text/plain"
		}
		want, wrong := c.ReadBatch(context.Background(), fresh, "/a", "1", "", 5, 0, nil)
		c.recent.find(reader, "/a", "1")
		conn := c.NewConn()
		if _, err := live(c, &conn, "/a"); err != nil {
			rt.Fatal(err)
		}
		conn.Close()
		before := reads
		got, err := c.ReadBatch(context.Background(), reader, "/a", "1", "", 5, 0, nil)
		if fmt.Sprint(err) != fmt.Sprint(wrong) || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			rt.Fatalf("got %+v, %v\nwant %+v, %v", got, err, want, wrong)
		}
		keeps := odd == "" && len(messages) > 0 && size < recentMax
		if reads == before {
			spared++
		}
		if (reads == before) != keeps && size < recentMax {
			rt.Fatalf("%d reads for %q", reads-before, sse)
		}
	})
	if spared == 0 {
		t.Error("no read was spared")
	}
}

// TestSSEIsKeptForNobodyWhoCameAfterIt holds the rule of recent for an answer that goes on: the stream that a reader
// reads must have been there before the answer.
func TestSSEIsKeptForNobodyWhoCameAfterIt(t *testing.T) {
	begun, more, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("live") == "" {
			shown("application/json", "9", "[\"read\"]")(w, r)
			return
		}
		events(nothing)(w, r)
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-more
		events("event: data\ndata: [\"shown\"]\n\n"+news)(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}, "", nil)
	c.cfg.TailMode = TailSSE
	read := func(reader string) string {
		t.Helper()
		b, err := c.ReadBatch(t.Context(), reader, "/a", "1", "", 1, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(texts(b.Events), ",")
	}
	read("before")
	ended := make(chan error, 1)
	conn := c.NewConn()
	defer conn.Close()
	go func() {
		_, err := live(c, &conn, "/a")
		ended <- err
	}()
	<-begun
	read("after")
	close(more)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if got := read("before"); got != `"shown"` {
		t.Errorf("who came before it gets %s", got)
	}
	if got := read("after"); got != `"read"` {
		t.Errorf("who came after it gets %s", got)
	}
	<-gone // the next answer is for both
}

// TestAStreamThatIsReadInBatchesIsPolled holds it from the reader on, for that stream alone.
func TestAStreamThatIsReadInBatchesIsPolled(t *testing.T) {
	client, asked := liveClient(t, TailAuto, events(news))
	for _, c := range []struct{ path, want string }{{"/a", "sse"}, {"/a", "long-poll"}, {"/b", "sse"}} {
		conn := client.NewConn()
		if _, err := live(client, &conn, c.path); err != nil || asked.take() != c.want {
			t.Errorf("%s is not asked for by %s: %v", c.path, c.want, err)
		}
		conn.Close()
		client.recent.find("r", "/a", "1")
	}
}

// Poll makes one long-poll.
func (c *Client) Poll(
	ctx context.Context, conn *Conn, path string, from fsm.Offset, cursor string, take func(Event) error,
) error {
	return newLiveRequest(c, conn, path, from, cursor, take).poll(ctx)
}

// SSE makes one request by SSE.
func (c *Client) SSE(
	ctx context.Context, conn *Conn, path string, from fsm.Offset, cursor string, take func(Event) error,
) error {
	return newLiveRequest(c, conn, path, from, cursor, take).sse(ctx)
}

func newLiveRequest(
	c *Client, conn *Conn, path string, from fsm.Offset, cursor string, take func(Event) error,
) *liveRequest {
	return &liveRequest{client: c, conn: conn, take: take, question: question{
		kind: kindTail, path: path, from: from, cursor: cursor,
	}}
}
