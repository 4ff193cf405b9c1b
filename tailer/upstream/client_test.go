package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
)

func testClient(t *testing.T, h http.HandlerFunc, root string, headers http.Header) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL + root)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{URL: u, Headers: headers, HeadTimeout: time.Second})
	t.Cleanup(c.Close)
	return c
}

func TestAPathGoesUpstreamAsItStands(t *testing.T) {
	for _, root := range []string{"", "/", "/v1/stream", "/v1/str%2Feam/"} {
		c := testClient(t, func(http.ResponseWriter, *http.Request) {}, root, nil)
		for _, path := range []string{
			"/a", "/a%2Fb", "/a%20b", "/%E2%82%AC", "/a/", "/%zz", "/a|b%2F", "/a^b", "/a:b;c=d,e", "/a[%2F]", "/100%",
		} {
			t.Run(root+path, func(t *testing.T) {
				target, err := c.target(path, url.Values{"offset": {"1"}})
				if err != nil {
					t.Fatal(err)
				}
				// The raw request target, before any server cleans or refuses it.
				got := c.request(t.Context(), http.MethodHead, target).URL.RequestURI()
				if want := strings.TrimSuffix(root, "/") + path + "?offset=1"; got != want || got != target {
					t.Errorf("asked for %s, want %s", got, want)
				}
			})
		}
	}
}

// What is no stream's path may lead out of the root, where our credentials must not go.
func TestWhatIsNoStreamsPathIsNeverAskedFor(t *testing.T) {
	logs, log := observer.New(zap.WarnLevel)
	metrics := prometheus.NewRegistry()
	var dials atomic.Int32
	c := New(Config{
		URL: &url.URL{Scheme: "http", Host: "streams", Path: "/tenant"}, HeadTimeout: time.Second, Metrics: metrics,
		Logger: zap.New(logs), Dial: func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("it was asked for")
		},
	})
	conn := c.NewConn()
	health := c.NewHealth(Backoff{}, 0, func() {})
	ignore := func(Event) error { return nil }
	var refused error
	for _, path := range []string{"/..%2fother%2fx", "/../other/x", "/%252e%252e%252fx", "/__ds/x", "//x", "/a*", "a"} {
		for name, ask := range map[string]func() error{
			"HEAD":      func() error { _, err := c.Head(t.Context(), path); return err },
			"HEAD anew": func() error { _, err := c.HeadAnew(t.Context(), path); return err },
			"long-poll": func() error { return c.Poll(t.Context(), &conn, path, "1", "", ignore) },
			"SSE":       func() error { return c.SSE(t.Context(), nil, path, "1", "", ignore) },
			"registry":  func() error { _, err := c.Registry(t.Context(), path, "1", true, ""); return err },
			"read":      func() error { _, err := c.ReadBeyond(t.Context(), path, "1", "2"); return err },
		} {
			err := ask()
			if !errors.Is(err, fsm.ErrPath) || IsDown(err) {
				t.Errorf("%s of %s: %v", name, path, err)
			}
			health.Report(path, 0, err)
			refused = err
		}
	}
	if n := dials.Load(); n != 0 || health.IsDown() {
		t.Errorf("%d connections; upstream counts as down: %t", n, health.IsDown())
	}
	if log.Len() != 1 {
		t.Errorf("it was logged %d times", log.Len())
	}
	for _, path := range []string{"/a", "/b", "/c"} {
		health.Report(path, 0, AnswerError{Status: 503})
	}
	if health.Report("//x", health.Spell(), refused); !health.IsDown() {
		t.Error("it counts as an answer of upstream")
	}
	if _, _, err := health.Enter(t.Context(), "//x", true); !errors.Is(err, fsm.ErrPath) {
		t.Errorf("it probes an upstream that is down: %v", err)
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "reveille_upstream_requests_total" && m.GetCounter().GetValue() > 0 {
				t.Errorf("it counts as a request: %s", m)
			}
		}
	}
}

func TestHeadersAreSent(t *testing.T) {
	var auth, host string
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		auth, host = r.Header.Get("Authorization"), r.Host
		w.Header().Set(HeaderNextOffset, "1")
	}, "", http.Header{"Authorization": {"Bearer x"}, "Host": {"streams.example"}})
	if _, err := c.Head(t.Context(), "/a"); err != nil {
		t.Fatal(err)
	}
	if auth != "Bearer x" || host != "streams.example" {
		t.Errorf("sent Authorization %q, Host %q", auth, host)
	}
}

func TestWhatHEADSays(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   fsm.StreamInfo
		fails  bool
	}{
		"a stream": {
			func(w http.ResponseWriter) { w.Header().Set(HeaderNextOffset, "5") },
			fsm.StreamInfo{Exists: true, Tail: "5"},
			false,
		},
		"404 is an answer": {func(w http.ResponseWriter) { w.WriteHeader(404) }, fsm.StreamInfo{}, false},
		"410 is an answer": {func(w http.ResponseWriter) { w.WriteHeader(410) }, fsm.StreamInfo{}, false},
		"403 is an error":  {func(w http.ResponseWriter) { w.WriteHeader(403) }, fsm.StreamInfo{}, true},
		"500 is an error":  {func(w http.ResponseWriter) { w.WriteHeader(500) }, fsm.StreamInfo{}, true},
		"a redirect is not followed": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(302)
		}, fsm.StreamInfo{}, true},
		"no offset is an error": {func(http.ResponseWriter) {}, fsm.StreamInfo{}, true},
		"a junk offset is an error": {
			func(w http.ResponseWriter) { w.Header().Set(HeaderNextOffset, "a b") },
			fsm.StreamInfo{},
			true,
		},
		"headers that never end are an error": {func(w http.ResponseWriter) {
			w.Header().Set("X",
				strings.Repeat("x", 128<<10))
		}, fsm.StreamInfo{}, true},
		"closed, with a TTL": {func(w http.ResponseWriter) {
			w.Header().Set(HeaderNextOffset, "5")
			w.Header().Set(HeaderClosed, "true")
			w.Header().Set(HeaderTTL, "60")
		}, fsm.StreamInfo{Exists: true, Tail: "5", Closed: true, TTL: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cl := testClient(t, func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }, "", nil)
			got, err := cl.Head(t.Context(), "/a")
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestAFewFailuresOfHEADAreRetried(t *testing.T) {
	var n atomic.Int32
	c := testClient(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(503)
		default:
			w.Header().Set(HeaderNextOffset, "1")
		}
	}, "", nil)
	if info, err := c.Head(t.Context(), "/a"); err != nil || info.Tail != "1" {
		t.Errorf("got %+v, %v", info, err)
	}
}

func TestErrorsOfUpstreamHoldNoURL(t *testing.T) {
	u, _ := url.Parse("http://user:secret@127.0.0.1:1/x")
	c := New(Config{URL: u, HeadTimeout: 100 * time.Millisecond})
	t.Cleanup(c.Close)
	_, err := c.Head(t.Context(), "/a")
	if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "user") {
		t.Errorf("got %v", err)
	}
}

// gate is a handler of HEAD that answers with a count when it is let to.
func gate() (http.HandlerFunc, chan struct{}, *atomic.Int32) {
	var n atomic.Int32
	open := make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(HeaderNextOffset, string('0'+n.Add(1)))
		select {
		case <-open:
		case <-r.Context().Done():
		}
	}, open, &n
}

// waiting is a context that tells when somebody begins to wait for it.
type waiting struct {
	context.Context
	begun chan<- struct{}
}

func (w waiting) Done() <-chan struct{} {
	w.begun <- struct{}{}
	return w.Context.Done()
}

// However many ask at once, one request is under way and one follows, and each gets the answer to one that began after
// it has asked.
func TestConcurrentHEADsAreTwoRequestsInARow(t *testing.T) {
	h, open, n := gate()
	c := testClient(t, h, "", nil)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	impatient := make(chan error, 1)
	go func() { _, err := c.Head(ctx, "/a"); impatient <- err }()
	for n.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	begun := make(chan struct{})
	for range 10 {
		wg.Go(func() {
			if info, err := c.Head(waiting{t.Context(), begun}, "/a"); err != nil || info.Tail != "2" {
				t.Errorf("got %+v, %v", info, err)
			}
		})
	}
	for range 10 {
		<-begun
	}
	// The one that began the first leaves: the request goes on, and the others wait for its end.
	cancel()
	if err := <-impatient; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled one got %v", err)
	}
	if n.Load() != 1 {
		t.Errorf("%d requests are under way", n.Load())
	}
	close(open)
	wg.Wait()
	if n.Load() != 2 || len(c.flights.last) > 0 {
		t.Errorf("%d requests were made, and %d are kept in mind", n.Load(), len(c.flights.last))
	}
}

func TestHeadAnewWaitsForNoOtherRequest(t *testing.T) {
	h, open, n := gate()
	c := testClient(t, h, "", nil)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = c.Head(t.Context(), "/a") })
	for n.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	wg.Go(func() {
		if info, err := c.HeadAnew(t.Context(), "/a"); err != nil || info.Tail != "2" {
			t.Errorf("got %+v, %v", info, err)
		}
	})
	for n.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	close(open)
	wg.Wait()
}

func TestAHEADThatHangsIsBoundedInTime(t *testing.T) {
	h, _, _ := gate()
	c := testClient(t, h, "", nil)
	if _, err := c.Head(t.Context(), "/a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestReadingBeyondATailGoesOnWhereAnAnswerEndsAtIt(t *testing.T) {
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		w.Header().Set(HeaderNextOffset, strconv.Itoa(min(n+1, 5)))
	}, "", nil)
	for tail, want := range map[fsm.Offset]fsm.Offset{"3": "4", "4": "5", "5": "5"} {
		if at, err := c.ReadBeyond(t.Context(), "/a", "1", tail); err != nil || at != want {
			t.Errorf("beyond %s it came to %s, want %s: %v", tail, at, want, err)
		}
	}
}

func TestReadingOnThatDoesNotComeToItsEndSaysHowFarItCame(t *testing.T) {
	offset := func(n int) fsm.Offset { return fsm.Offset(fmt.Sprintf("%04d", n)) }
	broken := false
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("offset")) // -1 is the start
		if broken {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set(HeaderNextOffset, string(offset(min(max(n, 0)+1, 150))))
	}, "", nil)
	var answer AnswerError
	at, err := c.ReadBeyond(t.Context(), "/a", fsm.Start, "0150")
	if !errors.As(err, &answer) || IsDown(err) || at != offset(chunksMax) {
		t.Fatalf("it came to %s: %v", at, err)
	}
	if at, err := c.ReadBeyond(t.Context(), "/a", at, "0150"); err != nil || at != "0150" {
		t.Errorf("read on, it came to %s: %v", at, err)
	}
	broken = true
	if at, err := c.ReadBeyond(t.Context(), "/a", "0120", "0150"); err == nil || at != "0120" {
		t.Errorf("broken, it came to %s: %v", at, err)
	}
}
