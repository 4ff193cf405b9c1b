// Package ports has what the tests of both ports have around them: a store in memory, doubles of the other parts of the
// program, and requests. Package service adds the ports.
package ports

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"reveille/fsm"
	"reveille/fsm/router"
	"reveille/fsm/spec"
	"reveille/fsm/token"
)

const (
	tokenKey = "the key of these tests, long enough 1"
	// OtherKey signs tokens that are not ours.
	OtherKey = "the key of someone else, long enough 2"
)

// Harness is both ports, with everything around them at hand. Its end asserts that no secret was logged.
type Harness struct {
	T         *testing.T
	Store     *Memory
	Up        *Upstream
	Rec       *Recorder
	Tester    *Tester
	Rebuilder *Rebuilder
	Consents  *Consents
	Tokens    *token.Tokens
	Outcomes  *router.Router
	Logs      *observer.ObservedLogs
	Logger    *zap.Logger
	Health    *Health
	// At is the address that requests come to; a loopback address, unless a test has another one.
	At net.IP

	apiPort, operatorPort http.Handler

	mu      sync.Mutex
	now     time.Time
	secrets []string
}

// New returns what is around the ports. Serve adds the ports.
func New(t *testing.T) *Harness {
	t.Helper()
	level, logs := observer.New(zapcore.DebugLevel)
	h := &Harness{
		T: t, Logs: logs, Logger: zap.New(level), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		secrets: []string{tokenKey, OtherKey},
		Up: &Upstream{
			Streams: map[string]fsm.StreamInfo{}, Shared: map[string]fsm.StreamInfo{}, Broken: map[string]bool{},
		},
		At:  net.IPv6loopback,
		Rec: &Recorder{Told: make(chan string, 64)}, Tester: &Tester{}, Rebuilder: &Rebuilder{},
		Health: &Health{}, Outcomes: router.New(),
	}
	h.Store = newMemory(h.Clock)
	h.Consents = &Consents{
		Granted: map[string]fsm.Consent{},
		Catalog: func(id string) (fsm.Subscription, bool) { return h.Store.Catalog().Get(id) },
	}
	h.Rec.Create = h.Store.CreateSubscription
	tokens, err := token.New(tokenKey)
	if err != nil {
		t.Fatal(err)
	}
	h.Tokens = tokens
	h.Outcomes.Connect(h.Rec, h.Rec)
	t.Cleanup(h.assertNoSecretLogged)
	return h
}

// Serve has the ports answer.
func (h *Harness) Serve(api, operator http.Handler) { h.apiPort, h.operatorPort = api, operator }

// Clock is the time in the test.
func (h *Harness) Clock() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// Secret adds a text that must not be logged, and returns it.
func (h *Harness) Secret(s string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.secrets = append(h.secrets, s)
	return s
}

func (h *Harness) assertNoSecretLogged() {
	for _, e := range h.Logs.All() {
		fields, err := json.Marshal(e.ContextMap())
		if err != nil {
			h.T.Errorf("log fields of %q: %v", e.Message, err)
		}
		line := e.Message + string(fields)
		for _, s := range h.secrets {
			if strings.Contains(line, s) {
				h.T.Errorf("a secret was logged: %s", line)
			}
		}
	}
}

// Answer is what came back.
type Answer struct {
	Status int
	Header http.Header
	Text   string
	Body   map[string]any
}

// Code is the code of a refusal.
func (a Answer) Code() string {
	e, _ := a.Body["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

// Message is the message of a refusal.
func (a Answer) Message() string {
	e, _ := a.Body["error"].(map[string]any)
	message, _ := e["message"].(string)
	return message
}

// Send sends a request to a handler.
func (h *Harness) Send(handler http.Handler, method, target, body string, header ...string) Answer {
	h.T.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	at := &net.TCPAddr{IP: h.At}
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return h.Read(w.Result())
}

// API sends a request to the API port.
func (h *Harness) API(method, target, body string, header ...string) Answer {
	h.T.Helper()
	if body != "" && !slices.Contains(header, "Content-Type") {
		header = append(slices.Clone(header), "Content-Type", "application/json")
	}
	return h.Send(h.apiPort, method, target, body, header...)
}

// Operator sends a request to the operator port.
func (h *Harness) Operator(method, target, body string, header ...string) Answer {
	h.T.Helper()
	return h.Send(h.operatorPort, method, "http://localhost:9090"+target, body,
		append([]string{"Content-Type", "application/json"}, header...)...)
}

// Read reads an answer.
func (h *Harness) Read(res *http.Response) Answer {
	h.T.Helper()
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		h.T.Fatal(err)
	}
	a := Answer{Status: res.StatusCode, Header: res.Header, Text: string(text)}
	if res.Header.Get("Content-Type") == "application/json" && len(text) > 0 {
		if err := json.Unmarshal(text, &a.Body); err != nil {
			h.T.Fatalf("answer %q: %v", text, err)
		}
	}
	return a
}

// Want checks an answer.
func (h *Harness) Want(a Answer, status int, code fsm.Code, inMessage string) {
	h.T.Helper()
	if a.Status != status || a.Code() != string(code) || !strings.Contains(a.Message(), inMessage) {
		h.T.Fatalf("got %d %s, want %d %s with %q in the message", a.Status, a.Text, status, code, inMessage)
	}
	if got := a.Header.Get("Cache-Control"); got != "no-store" {
		h.T.Fatalf("Cache-Control is %q, want no-store", got)
	}
	if (status == http.StatusServiceUnavailable) != (a.Header.Get("Retry-After") == "1") {
		h.T.Fatalf("Retry-After is %q with status %d", a.Header.Get("Retry-After"), status)
	}
}

// WantCalls checks the calls that Rec has noted.
func (h *Harness) WantCalls(want ...string) {
	h.T.Helper()
	if got := h.Rec.Noted(); !slices.Equal(got, want) {
		h.T.Fatalf("got calls %q, want %q", got, want)
	}
}

// Await waits until a call was made.
func (h *Harness) Await(call string) {
	h.T.Helper()
	limit := time.After(10 * time.Second)
	for {
		select {
		case got := <-h.Rec.Told:
			if got == call {
				return
			}
		case <-limit:
			h.T.Fatalf("there was no call %q, only %q", call, h.Rec.Noted())
		}
	}
}

// Pass lets time pass.
func (h *Harness) Pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

// Subscribe stores a subscription with consumers of streams /<id>/0 to /<id>/<n-1>.
func (h *Harness) Subscribe(id string, n int) fsm.Subscription {
	sub := fsm.Subscription{
		ID: id, Generation: "g-" + id, Pattern: "/" + id + "/*",
		Webhook: "https://user.example.com:8443/hook?key=" + h.Secret("key-of-the-webhook"),
		Secret:  h.Secret("whsec_" + id), Description: "of " + id, CreatedAt: h.Clock(),
	}
	h.Store.DB.PutSubscription(sub.WithDefaults())
	for i := range n {
		c := spec.NewConsumer(sub, fmt.Sprintf("/%s/%d", id, i), fsm.Start, 0)
		h.Store.DB.PutConsumer(c)
	}
	return sub
}

// Change alters a consumer.
func (h *Harness) Change(id string, f func(*fsm.Consumer)) {
	h.Store.DB.ChangeConsumer(id, f)
}

// RowsOf returns the entries of a list in an answer.
func RowsOf(a Answer, key string) (rows []map[string]any) {
	all, _ := a.Body[key].([]any)
	for _, r := range all {
		row, _ := r.(map[string]any)
		rows = append(rows, row)
	}
	return rows
}

// Next returns the cursor of the page behind an answer, "" at the end.
func Next(a Answer) string {
	next, _ := a.Body["next"].(string)
	return next
}

// Pages reads a list to its end and returns the values of a field, and how long the pages were.
func (h *Harness) Pages(path, key, field string) (values []string, lengths []int) {
	h.T.Helper()
	for next := ""; len(lengths) < 100; {
		at := path
		if next != "" {
			at += "&cursor=" + url.QueryEscape(next)
		}
		a := h.Operator("GET", at, "")
		if a.Status != 200 {
			h.T.Fatalf("GET %s: %s", at, a.Text)
		}
		for _, row := range RowsOf(a, key) {
			values = append(values, fmt.Sprint(row[field]))
		}
		lengths = append(lengths, len(RowsOf(a, key)))
		if next, _ = a.Body["next"].(string); next == "" {
			return values, lengths
		}
	}
	h.T.Fatalf("%s has no end", path)
	return nil, nil
}

// MustURL parses a URL.
func MustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// What Wake puts into the store.
const (
	Primary    = "/agents/task-1"
	ConsumerID = "my-sub:%2Fagents%2Ftask-1"
	Generation = "gen-1"
	Epoch      = 7
	WakeID     = "w_current"
)

// Wake puts a consumer into the store that is in its seventh wake: acked 100, tail 200.
func (h *Harness) Wake() {
	c := spec.NewConsumer(fsm.Subscription{ID: "my-sub", Generation: Generation}, Primary, "100", Epoch)
	c.State, c.WakeID, c.Attempt, c.Sent = fsm.Waking, WakeID, 1, true
	c.Links[Primary] = fsm.Link{Acked: "100", Tail: "200"}
	h.Store.DB.PutConsumer(c)
	h.Up.Streams[Primary] = fsm.StreamInfo{Exists: true, Tail: "200"}
}

// Token is a callback token of a consumer.
func (h *Harness) Token(consumer string, epoch int64, age time.Duration) string {
	return h.Secret(h.Tokens.Mint(consumer, Generation, epoch, h.Clock().Add(-age)))
}
