package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/test/harness"
)

// backlog is a server that shows all of a stream in each answer, and how often it was asked.
type backlog struct {
	contentType, data string
	asked             atomic.Int32
	// open counts the answers that are not over.
	open atomic.Int32
}

// messages is a backlog of n messages, which are their numbers.
func messages(n int) *backlog {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return &backlog{contentType: "application/json", data: "[" + strings.Join(list, ",") + "]"}
}

// endlessMessages is a backlog whose answers do not end.
func endlessMessages() *backlog {
	return &backlog{contentType: "application/json", data: "[0,1,2,3,4,5,6"}
}

func (s *backlog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	s.open.Add(1)
	defer s.open.Add(-1)
	shown(s.contentType, "9", s.data)(w, r)
	if s.contentType == "application/json" && !strings.HasSuffix(s.data, "]") {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// closed waits until only so many answers are open.
func (s *backlog) closed(t *testing.T, open int32) {
	t.Helper()
	harness.Eventually(t, harness.Wait, "the answers are closed", func() error {
		if n := s.open.Load(); n != open {
			return fmt.Errorf("%d are open, want %d", n, open)
		}
		return nil
	})
}

// walk reads to the end, and returns what it has read.
func walk(t *testing.T, c *Client, reader string, from fsm.Offset, most int) (events []string) {
	t.Helper()
	for at := from; at != "9"; {
		b, err := c.ReadBatch(t.Context(), reader, "/a", at, "", most, 0, nil)
		if err != nil {
			t.Fatalf("from %q: %v", at, err)
		}
		events = append(events, texts(b.Events)...)
		at = b.To
	}
	return events
}

func TestABacklogIsReadInOneAnswer(t *testing.T) {
	long := strings.Repeat("x", fsm.MaxDeliveryBytes*2/5)
	for name, s := range map[string]*backlog{
		"messages": messages(1000),
		"messages of a long text": {
			contentType: "application/json", data: `["` + strings.Repeat(long[:99<<10]+`","`, 50) + `"]`,
		},
		"bytes": {contentType: "text/plain", data: strings.Repeat(long, 20)},
	} {
		t.Run(name, func(t *testing.T) {
			c := testClient(t, s.ServeHTTP, "", nil)
			got := strings.Join(walk(t, c, "r", "1", 7), ",")
			if want := strings.Trim(s.data, "[]"); strings.ReplaceAll(got, "x,x", "xx") != want && got != want {
				t.Errorf("got %d bytes, want %d", len(got), len(want))
			}
			if n := s.asked.Load(); n != 1 {
				t.Errorf("it was asked %d times", n)
			}
			if n := len(c.readings.kept); n != 0 {
				t.Errorf("%d answers are kept that are over", n)
			}
		})
	}
}

func TestAnAnswerIsGoneOnWithAtAnEventThatIsTooDeep(t *testing.T) {
	s := &backlog{contentType: "application/json", data: "[1,2,3," + nested(fsm.MaxDepth+1) + ",5]"}
	c := testClient(t, s.ServeHTTP, "", nil)
	if events := walk(t, c, "r", "1", 5); !slices.Equal(events, []string{"1", "2", "3", "5"}) {
		t.Errorf("got %q", events)
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

// TestWhoGoesOnWithAnAnswer holds who gets what an answer shows that was asked for by another call, from position 2.
func TestWhoGoesOnWithAnAnswer(t *testing.T) {
	for _, tc := range []struct {
		name         string
		reader, path string
		at           int64
		most         int
		want         []string
		// asked is how often the server was asked, and open how many answers are then.
		asked, open int32
	}{
		{name: "the reader, from where it has ended", reader: "r", at: 2, want: []string{"2", "3"}, asked: 1, open: 1},
		{name: "the reader, further on", reader: "r", at: 4, want: []string{"4", "5"}, asked: 1, open: 1},
		{
			name: "not the reader that reads the same again", reader: "r", at: 0, want: []string{"0", "1"}, asked: 2,
			open: 1,
		},
		{name: "not another reader", reader: "s", at: 2, want: []string{"2", "3"}, asked: 2, open: 2},
		{
			name: "not a reader of another stream", reader: "r", path: "/b", at: 2, want: []string{"2", "3"}, asked: 2,
			open: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := endlessMessages()
			c := testClient(t, s.ServeHTTP, "", nil)
			if b, err := c.ReadBatch(t.Context(), "r", "/a", "1", "", 2, 0, nil); err != nil || b.To != at(2) {
				t.Fatalf("got %+v, %v", b, err)
			}
			path := "/a"
			if tc.path != "" {
				path = tc.path
			}
			b, err := c.ReadBatch(t.Context(), tc.reader, path, at(tc.at), "", 2, 0, nil)
			if err != nil || !slices.Equal(texts(b.Events), tc.want) || b.From != at(tc.at) || b.To != at(tc.at+2) {
				t.Errorf("got %q to %q, %v", texts(b.Events), b.To, err)
			}
			if n := s.asked.Load(); n != tc.asked {
				t.Errorf("it was asked %d times", n)
			}
			s.closed(t, tc.open)
			c.Close()
			s.closed(t, 0)
			if _, err := c.ReadBatch(t.Context(), "r", "/a", "1", "", 2, 0, nil); err != nil {
				t.Error(err)
			}
			s.closed(t, 0)
		})
	}
}

func TestAnAnswerThatIsCutWhileItIsKeptIsAskedForAgain(t *testing.T) {
	cut := make(chan struct{})
	all := messages(100_000) // more than what is received ahead
	var asked atomic.Int32
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 1 {
			all.ServeHTTP(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nStream-Next-Offset: 9\r\n"+
			"Content-Length: %d\r\n\r\n", len(all.data))
		_, _ = io.WriteString(conn, all.data[:64<<10])
		_ = conn.Close()
		close(cut)
	}, "", nil)
	b, err := c.ReadBatch(t.Context(), "r", "/a", "1", "", 10, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-cut
	events := append(texts(b.Events), walk(t, c, "r", b.To, 1000)...)
	if len(events) != 100_000 || events[99_999] != "99999" {
		t.Errorf("got %d events", len(events))
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestAnswersThatAreKeptAreBounded(t *testing.T) {
	s := endlessMessages()
	c := testClient(t, s.ServeHTTP, "", nil)
	read := func(reader int, at fsm.Offset) {
		t.Helper()
		if _, err := c.ReadBatch(t.Context(), strconv.Itoa(reader), "/a", at, "", 1, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	for reader := range readingsMax {
		read(reader, "1")
	}
	read(0, at(1)) // so that reader 1 has not read for longest
	read(readingsMax, "1")
	s.closed(t, readingsMax)
	before := s.asked.Load()
	read(0, at(2))
	read(1, at(1))
	if n := s.asked.Load() - before; n != 1 {
		t.Errorf("reader 0 and reader 1 ask %d times", n)
	}
	s.closed(t, readingsMax)

	c.readings.mu.Lock()
	for _, r := range c.readings.kept[:readingsMax-1] {
		r.since = r.since.Add(-readingsIdle)
	}
	c.readings.mu.Unlock()
	c.readings.expire()
	s.closed(t, 1)
	c.readings.mu.Lock()
	defer c.readings.mu.Unlock()
	if c.readings.expiry == nil || len(c.readings.kept) != 1 {
		t.Errorf("%d are kept, with the timer %v", len(c.readings.kept), c.readings.expiry)
	}
}

// TestACallThatEndsLeavesNoAnswerOpen holds it for one that waits for data, at the beginning and later.
func TestACallThatEndsLeavesNoAnswerOpen(t *testing.T) {
	for name, from := range map[string]fsm.Offset{"of a new answer": "1", "of one that was kept": at(2)} {
		t.Run(name, func(t *testing.T) {
			s := endlessMessages()
			c := testClient(t, s.ServeHTTP, "", nil)
			if _, err := c.ReadBatch(t.Context(), "r", "/a", "1", "", 2, 0, nil); err != nil {
				t.Fatal(err)
			}
			cause := errors.New("the call is over")
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, cause)
			defer cancel()
			if _, err := c.ReadBatch(ctx, "r", "/a", from, "", 100, 0, nil); !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
			s.closed(t, 0)
		})
	}
}

// hasty is a context without any time.
type hasty struct{ context.Context }

func (hasty) Deadline() (time.Time, bool) { return time.Now(), true }

func TestAPositionThatIsTooFarForOneCallIsReachedByMore(t *testing.T) {
	for name, s := range map[string]*backlog{
		"messages": messages(1000),
		"bytes":    {contentType: "text/plain", data: strings.Repeat("x", batchBuffer*3) + "the rest"},
	} {
		t.Run(name, func(t *testing.T) {
			want, far := "999", int64(999)
			if s.contentType == "text/plain" {
				want, far = "the rest", int64(len(s.data)-len("the rest"))
			}
			c := testClient(t, s.ServeHTTP, "", nil)
			for calls := 0; ; calls++ {
				b, err := c.ReadBatch(hasty{t.Context()}, "r", "/a", at(far), "", 1, 0, nil)
				if errors.Is(err, errFar) && calls < 2000 {
					continue
				}
				if err != nil || !slices.Equal(texts(b.Events), []string{want}) || calls < 2 {
					t.Errorf("after %d calls: got %.100q, %v", calls, texts(b.Events), err)
				}
				break
			}
			if n := s.asked.Load(); n != 1 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

// TestReadersInParallelGetEachItsOwn has many readers, the same ones too, read at once.
func TestReadersInParallelGetEachItsOwn(t *testing.T) {
	s := messages(500)
	c := testClient(t, s.ServeHTTP, "", nil)
	var group sync.WaitGroup
	for n := range 100 {
		group.Go(func() {
			if events := walk(t, c, strconv.Itoa(n/2), "1", 1+n%50); len(events) != 500 || events[499] != "499" {
				t.Errorf("reader %d got %d events", n, len(events))
			}
		})
	}
	group.Wait()
}

// TestReadersOfOnePoolOfBuffersGetTheirOwnEvents holds that answers which are read at the same time do not mix, and
// that a batch keeps its events when others use its buffer.
func TestReadersOfOnePoolOfBuffersGetTheirOwnEvents(t *testing.T) {
	const readers, rounds, events, batch = 4, 5, 200, 7
	list := func(path string) (list []string) {
		for i := range events {
			list = append(list, fmt.Sprintf("%q", strings.Repeat(fmt.Sprint(path, i), 80)))
		}
		return list
	}
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		shown("application/json", "9", "["+strings.Join(list(r.URL.Path), ",")+"]")(w, r)
	}, "", nil)
	var g sync.WaitGroup
	for i := range readers {
		g.Go(func() {
			path := fmt.Sprint("/", i)
			for range rounds {
				var got [][]byte
				for at := fsm.Offset("1"); at != "9" && len(got) <= events; {
					b, err := c.ReadBatch(t.Context(), path, path, at, "", batch, 0, nil)
					if err != nil {
						t.Error(err)
						return
					}
					got, at = append(got, b.Events...), b.To
				}
				if want := list(path); !slices.Equal(texts(got), want) {
					t.Errorf("%s has other events than its own", path)
				}
			}
		})
	}
	g.Wait()
}
