package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
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

// span returns what lies between two positions, read two events at a time.
func span(t *testing.T, c *Client, at, end fsm.Offset) (got string) {
	t.Helper()
	for end.After(at) {
		b, err := c.ReadBatch(t.Context(), "r", "/a", at, end, 2, false)
		if err != nil || !b.Within.After(at) {
			t.Fatalf("from %q to %q: %+v, %v", at, end, b, err)
		}
		got += strings.Join(texts(b.Events), "")
		if at = b.To; at.After(end) {
			at = b.Within
		}
	}
	return got
}

// TestAnOffsetThatIsNoneIsNotLocated holds which offsets are refused.
func TestAnOffsetThatIsNoneIsNotLocated(t *testing.T) {
	s := &chunked{json: true, data: "1234567"}
	c := testClient(t, s.ServeHTTP, "", nil)
	for _, tc := range []struct{ from, to fsm.Offset }{
		{"-1", "0008"},
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
	none := testClient(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, "", nil)
	if _, err := none.Locate(t.Context(), "/a", "-1", "0003"); !errors.Is(err, fsm.ErrNoStream) {
		t.Errorf("of a stream that is not there: %v", err)
	}
}
