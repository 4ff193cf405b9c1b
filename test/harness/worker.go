package harness

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// StreamOffset is a stream and an offset in it, as wakes, acks and answers to callbacks hold them.
type StreamOffset struct {
	Path   string `json:"path"`
	Offset string `json:"offset"`
}

// Payload is the body of a wake-up notification (webhook spec, Payload Fields).
type Payload struct {
	ConsumerID    string         `json:"consumer_id"`
	Epoch         int64          `json:"epoch"`
	WakeID        string         `json:"wake_id"`
	PrimaryStream string         `json:"primary_stream"`
	Streams       []StreamOffset `json:"streams"`
	TriggeredBy   []string       `json:"triggered_by"`
	Callback      string         `json:"callback"`
	Token         string         `json:"token"`
}

// Subscription is the ID of the subscription that the wake belongs to.
func (p Payload) Subscription() string {
	id, _, _ := strings.Cut(p.ConsumerID, ":")
	return id
}

// Offset returns the offset that the wake names for a stream, and "" if it does not name the stream.
func (p Payload) Offset(path string) string {
	for _, s := range p.Streams {
		if s.Path == path {
			return s.Offset
		}
	}
	return ""
}

// Wake is one request that a worker got.
type Wake struct {
	Payload
	// Path is the path of the request, as it stood in its URL.
	Path   string
	Header http.Header
	Body   []byte
	At     time.Time
}

// Worker is a webhook endpoint that records the wakes it gets and answers them as the test says. Every wake must be
// well formed. If the worker knows the secret of the subscription, the signature must be right. Otherwise the test
// fails at its end.
type Worker struct {
	// URL is what a subscription takes as its webhook. Requests to any path behind it reach the worker, too.
	URL string

	t      testing.TB
	server *httptest.Server

	mu      sync.Mutex
	answer  func(w http.ResponseWriter, r *http.Request, wake Wake)
	secrets map[string][]string
	wakes   []Wake
}

// NewWorker starts a worker that answers 200 with an empty body until the test changes that.
func NewWorker(t testing.TB) *Worker {
	w := &Worker{t: t, secrets: map[string][]string{}}
	w.answer = func(http.ResponseWriter, *http.Request, Wake) {}
	w.server = httptest.NewServer(http.HandlerFunc(w.serve))
	w.URL = w.server.URL
	t.Cleanup(func() {
		// Requests that a test lets hang are cut, then waited for.
		w.server.CloseClientConnections()
		w.server.Close()
		w.checkSignatures()
	})
	return w
}

// Answer sets what the worker does with the wakes that come from now on. The function runs on the request's goroutine;
// the request's context ends when Reveille gives up or the test does.
func (w *Worker) Answer(f func(w http.ResponseWriter, r *http.Request, wake Wake)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

// AnswerDone makes the worker answer that it is done.
func (w *Worker) AnswerDone() {
	w.Answer(func(rw http.ResponseWriter, _ *http.Request, _ Wake) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"done":true}`)
	})
}

// AnswerStatus makes the worker answer with a status and an empty body.
func (w *Worker) AnswerStatus(status int) {
	w.Answer(func(rw http.ResponseWriter, _ *http.Request, _ Wake) { rw.WriteHeader(status) })
}

// Trust tells the worker the secret of a subscription. A subscription that was created again under its old ID has
// several.
func (w *Worker) Trust(subscription, secret string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets[subscription] = append(w.secrets[subscription], secret)
}

// Wakes returns the wakes so far, in the order of their arrival.
func (w *Worker) Wakes() []Wake {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Wake(nil), w.wakes...)
}

// Wake waits for the nth wake, counted from 1, and returns it.
func (w *Worker) Wake(n int) Wake {
	w.t.Helper()
	Eventually(w.t, Wait, fmt.Sprintf("wake %d", n), func() error {
		if got := len(w.Wakes()); got < n {
			return fmt.Errorf("there were %d", got)
		}
		return nil
	})
	return w.Wakes()[n-1]
}

func (w *Worker) serve(rw http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions { // a request for consent, which it does not know
		rw.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // Reveille died on the way: some tests kill it
	}
	wake := Wake{Path: r.URL.EscapedPath(), Header: r.Header, Body: body, At: time.Now()}
	if err := json.Unmarshal(body, &wake.Payload); err != nil {
		w.t.Errorf("the worker got a wake that is not JSON: %v: %q", err, body)
	}
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		w.t.Errorf("the worker got %s with Content-Type %q, want POST with application/json", r.Method,
			r.Header.Get("Content-Type"))
	}
	w.mu.Lock()
	w.wakes = append(w.wakes, wake)
	answer := w.answer
	w.mu.Unlock()
	answer(rw, r, wake)
}

// checkSignatures runs at the end, because a wake may overtake the answer that has the secret.
func (w *Worker) checkSignatures() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wake := range w.wakes {
		secrets := w.secrets[wake.Subscription()]
		err := errors.New("no secret")
		for _, s := range secrets {
			if err = VerifySignature(s, wake.Header.Get("Webhook-Signature"), wake.Body, wake.At); err == nil {
				break
			}
		}
		if len(secrets) > 0 && err != nil {
			w.t.Errorf("wake %s of %s, epoch %d: %v", wake.WakeID, wake.ConsumerID, wake.Epoch, err)
		}
	}
}

// VerifySignature checks a Webhook-Signature header (webhook spec, Webhook Signature Verification).
func VerifySignature(secret, header string, body []byte, now time.Time) error {
	stamp, signature, found := strings.Cut(header, ",")
	stamp, hasTime := strings.CutPrefix(stamp, "t=")
	signature, hasSum := strings.CutPrefix(signature, "sha256=")
	if !found || !hasTime || !hasSum {
		return fmt.Errorf("Webhook-Signature is %q, want t=…,sha256=…", header)
	}
	if err := inTime(stamp, now); err != nil {
		return err
	}
	got, err := hex.DecodeString(signature)
	if err != nil || !hmac.Equal(got, sum([]byte(secret), stamp, body)) {
		return errors.New("the signature is wrong")
	}
	return nil
}

// VerifyStandard checks the headers of Standard Webhooks, which pushes have by default. One right signature among
// several is enough: during a rotation, two secrets sign.
func VerifyStandard(secret string, header http.Header, body []byte, now time.Time) error {
	id, stamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	if id == "" {
		return errors.New("there is no Webhook-Id")
	}
	if err := inTime(stamp, now); err != nil {
		return err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return errors.New("the secret is not whsec_ and base64")
	}
	for s := range strings.FieldsSeq(header.Get("Webhook-Signature")) {
		encoded, found := strings.CutPrefix(s, "v1,")
		got, err := base64.StdEncoding.DecodeString(encoded)
		if found && err == nil && hmac.Equal(got, sum(key, id+"."+stamp, body)) {
			return nil
		}
	}
	return errors.New("the signature is wrong")
}

func inTime(stamp string, now time.Time) error {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("the time of the signature is %q", stamp)
	}
	if age := now.Sub(time.Unix(seconds, 0)); age.Abs() > 5*time.Minute {
		return fmt.Errorf("the request was signed %s ago, more than 5 minutes", age)
	}
	return nil
}

// Sign returns the Webhook-Signature header for a body that is sent at a time.
func Sign(secret string, at time.Time, body []byte) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	return "t=" + stamp + ",sha256=" + hex.EncodeToString(sum([]byte(secret), stamp, body))
}

func sum(key []byte, head string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s", head, body)
	return mac.Sum(nil)
}
