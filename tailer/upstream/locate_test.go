package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"reveille/fsm"
)

// chunked shows a stream of single characters, so many of them in one answer, or all if chunk is 0. It grows by one
// before each of some answers.
type chunked struct {
	json bool

	mu          sync.Mutex
	data        string
	chunk, grow int
}

// offsetOf is the offset behind n events.
func offsetOf(n int) fsm.Offset {
	if n == 0 {
		return fsm.Start
	}
	return fsm.Offset(fmt.Sprintf("%04d", n))
}

func (s *chunked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grow > 0 {
		s.grow--
		s.data += string(rune('A' + s.grow))
	}
	from, err := strconv.Atoi(r.URL.Query().Get("offset"))
	if from < 0 {
		from = 0
	}
	if err != nil || from > len(s.data) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	some := s.data[from:]
	if s.chunk > 0 {
		some = some[:min(len(some), s.chunk)]
	}
	w.Header().Set(HeaderNextOffset, string(offsetOf(from+len(some))))
	w.Header().Set(HeaderUpToDate, strconv.FormatBool(from+len(some) == len(s.data)))
	if !s.json {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, some)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, "[%s]", strings.Join(strings.Split(some, ""), ","))
}

// TestAPositionIsLocated holds that reading from one offset to the position of another brings what lies between them,
// no more and no less, however much the server shows in one answer, and though the stream grows.
func TestAPositionIsLocated(t *testing.T) {
	for _, json := range []bool{true, false} {
		for _, chunk := range []int{0, 1, 2, 3, 7} {
			for _, grow := range []int{0, 1, 5} {
				s := &chunked{json: json, chunk: chunk}
				c := testClient(t, s.ServeHTTP, "", nil)
				for from := range 7 {
					for to := from + 1; to <= 7; to++ {
						s.mu.Lock()
						s.data, s.grow = "1234567", grow
						s.mu.Unlock()
						end, err := c.Locate(t.Context(), "/a", offsetOf(from), offsetOf(to))
						if err != nil {
							t.Fatalf("json %v, chunks of %d, growing by %d: %d to %d: %v",
								json, chunk, grow, from, to, err)
						}
						if got, want := span(t, c, offsetOf(from), end), "1234567"[from:to]; got != want {
							t.Errorf("json %v, chunks of %d, growing by %d: %d to %d: %q brings %q, want %q",
								json, chunk, grow, from, to, end, got, want)
						}
					}
				}
			}
		}
	}
}

// span returns what lies between two positions, read two events at a time as an aside is that has yet to deliver it.
func span(t *testing.T, c *Client, at, end fsm.Offset) (got string) {
	t.Helper()
	for reads := 0; end.After(at); reads++ {
		b, err := c.ReadBatch(t.Context(), "r", "/a", at, end, 2, 0, nil)
		if err != nil || b.NotKept || !b.Within.After(at) || reads == 100 {
			t.Fatalf("from %q to %q, read %d: %+v, %v", at, end, reads, b, err)
		}
		got += strings.Join(texts(b.Events), "")
		switch { // spec.Deliver
		case !b.To.After(end):
			at = b.To
		case b.Within.After(end):
			at = end
		default:
			at = b.Within
		}
	}
	return got
}

// TestASpanEndsWhereItWasLocated holds that it brings the same though the stream grows and the server shows another
// number of events in one answer by then, and that it does so, too, where its end is an offset of the stream.
func TestASpanEndsWhereItWasLocated(t *testing.T) {
	chunks := []int{0, 2, 3, 5}
	for name, data := range map[string]string{"other": "123456", "equal": "111111", "alternating": "121212"} {
		for _, json := range []bool{true, false} {
			s := &chunked{json: json}
			c := testClient(t, s.ServeHTTP, "", nil)
			show := func(data string, chunk int) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.data, s.chunk = data, chunk
			}
			for n := range len(chunks) * len(chunks) * len(data) {
				located, read, from := chunks[n%4], chunks[n/4%4], n/16
				for to := from + 1; to <= len(data); to += 2 {
					show(data, located)
					end, err := c.Locate(t.Context(), "/a", offsetOf(from), offsetOf(to))
					if err != nil {
						t.Fatalf("%s events, json %v, chunks of %d: %d to %d: %v", name, json, located, from, to, err)
					}
					for _, more := range []string{"", "8121"} {
						for _, end := range []fsm.Offset{end, offsetOf(to)} {
							show(data+more, read)
							if got, want := span(t, c, offsetOf(from), end), data[from:to]; got != want {
								t.Errorf("%s events, json %v, chunks of %d, then %d, %q more: %d to %q: %q, want %q",
									name, json, located, read, more, from, end, got, want)
							}
						}
					}
				}
			}
		}
	}
}

// TestAPositionIsLocatedInAStreamThatGoesOn holds how often the server is asked for one that lies inside of the first
// answer, of a stream that is long or grows before each answer, and whose events are alike or not.
func TestAPositionIsLocatedInAStreamThatGoesOn(t *testing.T) {
	for _, tc := range []struct {
		name, data  string
		chunk, grow int
		most        int64
		fails       bool
	}{
		{name: "it grows", data: "1234567", grow: 2000, most: 2},
		{name: "it grows, in chunks", data: "1234567", chunk: 3, grow: 2000, most: 2},
		{name: "it is long", data: "1234567" + strings.Repeat("1", 6000), chunk: 3, most: 2},
		{name: "its events are alike", data: strings.Repeat("1", 90), chunk: 3, most: 80},
		{name: "they are alike, and it is long", data: strings.Repeat("1", 6000), chunk: 3, most: 110, fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, json := range []bool{true, false} {
				s := &chunked{json: json, data: tc.data, chunk: tc.chunk, grow: tc.grow}
				var asked atomic.Int64
				c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					s.ServeHTTP(w, r)
				}, "", nil)
				end, err := c.Locate(t.Context(), "/a", fsm.Start, offsetOf(2))
				var answer AnswerError
				if tc.fails != errors.As(err, &answer) || !tc.fails && end != fsm.Start.At(2, "0009") {
					t.Errorf("json %v: it is %q, %v", json, end, err)
				}
				if n := asked.Load(); n > tc.most {
					t.Errorf("json %v: it took %d requests", json, n)
				}
			}
		})
	}
}

// TestTheEndOfASpanIsFoundByTheNextCall holds that a call that has no time for all of it does not begin anew.
func TestTheEndOfASpanIsFoundByTheNextCall(t *testing.T) {
	s := &chunked{json: true, data: strings.Repeat("1234567", 9), chunk: 1}
	c := testClient(t, s.ServeHTTP, "", nil)
	at, end := fsm.Start.At(50, "0051"), fsm.Start.At(52, "0052")
	for calls := 1; ; calls++ {
		b, err := c.ReadBatch(hasty{t.Context()}, "r", "/a", at, end, 1, 0, nil)
		if errors.Is(err, errFar) && calls < 200 {
			continue
		}
		if err != nil || calls < 2 || strings.Join(texts(b.Events), "") != s.data[50:51] {
			t.Errorf("after %d calls: %+v, %v", calls, b, err)
		}
		return
	}
}

// TestAnOffsetThatIsNoneIsNotLocated holds which offsets are refused.
func TestAnOffsetThatIsNoneIsNotLocated(t *testing.T) {
	s := &chunked{json: true, data: "1234567"}
	c := testClient(t, s.ServeHTTP, "", nil)
	for _, tc := range []struct{ from, to fsm.Offset }{
		{"-1", "0008"},
		{"0007", "0008"},
		{"0003", "0003"},
		{"0005", "0003"},
		{"-1", "000x"},
		{"0003", "0003x"},
		{"x", "y"},
		{"0009", "x"},
	} {
		if end, err := c.Locate(t.Context(), "/a", tc.from, tc.to); !errors.Is(err, fsm.ErrOffset) {
			t.Errorf("%q to %q: %q, %v", tc.from, tc.to, end, err)
		}
	}
	for at, want := range map[fsm.Offset]error{"-1": nil, "0003": nil, "0007": nil, "0003x": fsm.ErrOffset} {
		if err := c.Readable(t.Context(), "/a", at); !errors.Is(err, want) {
			t.Errorf("readable from %q: %v", at, err)
		}
	}
	none := testClient(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, "", nil)
	if _, err := none.Locate(t.Context(), "/a", "-1", "0003"); !errors.Is(err, fsm.ErrNoStream) {
		t.Errorf("of a stream that is not there: %v", err)
	}
	if err := none.Readable(t.Context(), "/a", "-1"); !errors.Is(err, fsm.ErrNoStream) {
		t.Errorf("readable though it is not there: %v", err)
	}
}
