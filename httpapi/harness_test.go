package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tokenKey = "the key of these tests, long enough 1"
	otherKey = "the key of someone else, long enough 2"
)

// harness is a Service with everything around it at hand. Its end asserts that no secret was logged.
type harness struct {
	t      *testing.T
	svc    *Service
	store  *memory
	up     *upstream
	rec    *recorder
	tokens *token.Tokens
	logs   *observer.ObservedLogs
	health *health
	// conns are those of the API port, once server has started it.
	conns *conns

	mu      sync.Mutex
	now     time.Time
	secrets []string
}

func newHarness(t *testing.T, change func(*Config)) *harness {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	h := &harness{
		t: t, logs: logs, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), secrets: []string{tokenKey, otherKey},
		up: &upstream{
			streams: map[string]fsm.StreamInfo{}, shared: map[string]fsm.StreamInfo{}, broken: map[string]bool{},
		},
		rec:    &recorder{told: make(chan string, 64)},
		health: &health{},
	}
	h.store = newMemory(h.clock)
	h.rec.create = h.store.CreateSubscription
	tokens, err := token.New(tokenKey)
	if err != nil {
		t.Fatal(err)
	}
	h.tokens = tokens
	outcomes := router.New()
	outcomes.Connect(h.rec, h.rec)
	cfg := Config{
		Store: h.store, Upstream: h.up, Streams: h.rec, Outcomes: outcomes, Targets: h.rec, Tokens: tokens,
		Tester: &tester{}, Health: h.health,
		UpstreamTransport: &http.Transport{DisableCompression: true, ExpectContinueTimeout: time.Second},
		Ready:             h.store.ready, Logger: zap.New(core), Clock: h.clock, HeadTimeout: 50 * time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	if h.svc, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.svc.Close()
		h.assertNoSecretLogged()
	})
	return h
}

func (h *harness) clock() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *harness) secret(s string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.secrets = append(h.secrets, s)
	return s
}

func (h *harness) assertNoSecretLogged() {
	for _, e := range h.logs.All() {
		fields, err := json.Marshal(e.ContextMap())
		if err != nil {
			h.t.Errorf("log fields of %q: %v", e.Message, err)
		}
		line := e.Message + string(fields)
		for _, s := range h.secrets {
			if strings.Contains(line, s) {
				h.t.Errorf("a secret was logged: %s", line)
			}
		}
	}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

func (a answer) code() string {
	e, _ := a.body["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

func (a answer) message() string {
	e, _ := a.body["error"].(map[string]any)
	message, _ := e["message"].(string)
	return message
}

func (h *harness) send(handler http.Handler, method, target, body string, header ...string) answer {
	h.t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return h.read(w.Result())
}

func (h *harness) api(method, target, body string, header ...string) answer {
	h.t.Helper()
	if body != "" && !slices.Contains(header, "Content-Type") {
		header = append(slices.Clone(header), "Content-Type", "application/json")
	}
	return h.send(h.svc.API(), method, target, body, header...)
}

func (h *harness) operator(method, target, body string, header ...string) answer {
	h.t.Helper()
	return h.send(h.svc.Operator(), method, "http://localhost:9090"+target, body,
		append([]string{"Content-Type", "application/json"}, header...)...)
}

func (h *harness) read(res *http.Response) answer {
	h.t.Helper()
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, text: string(text)}
	if res.Header.Get("Content-Type") == "application/json" && len(text) > 0 {
		if err := json.Unmarshal(text, &a.body); err != nil {
			h.t.Fatalf("answer %q: %v", text, err)
		}
	}
	return a
}

func (h *harness) want(a answer, status int, code fsm.Code, inMessage string) {
	h.t.Helper()
	if a.status != status || a.code() != string(code) || !strings.Contains(a.message(), inMessage) {
		h.t.Fatalf("got %d %s, want %d %s with %q in the message", a.status, a.text, status, code, inMessage)
	}
	if got := a.header.Get("Cache-Control"); got != "no-store" {
		h.t.Fatalf("Cache-Control is %q, want no-store", got)
	}
	if (status == http.StatusServiceUnavailable) != (a.header.Get("Retry-After") == "1") {
		h.t.Fatalf("Retry-After is %q with status %d", a.header.Get("Retry-After"), status)
	}
}

func (h *harness) wantCalls(want ...string) {
	h.t.Helper()
	if got := h.rec.noted(); !slices.Equal(got, want) {
		h.t.Fatalf("got calls %q, want %q", got, want)
	}
}

// await waits until a call was made.
func (h *harness) await(call string) {
	h.t.Helper()
	limit := time.After(10 * time.Second)
	for {
		select {
		case got := <-h.rec.told:
			if got == call {
				return
			}
		case <-limit:
			h.t.Fatalf("there was no call %q, only %q", call, h.rec.noted())
		}
	}
}

// server starts the API port for real.
func (h *harness) server() (root string, client *http.Client) {
	srv := httptest.NewUnstartedServer(nil)
	limited := h.svc.Listen(srv.Listener).(*listener)
	h.conns, srv.Config, srv.Listener = limited.conns, h.svc.APIServer(""), limited
	srv.Start()
	h.t.Cleanup(srv.Close)
	return srv.URL, srv.Client()
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
