package bench

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reveille/test/harness"
)

// arrival is a wake that came.
type arrival struct {
	harness.Payload
	at time.Time
	// answered is closed once the answer is as good as sent.
	answered <-chan struct{}
}

// hooks is a webhook endpoint that tells those who wait for a stream's wake of it.
type hooks struct {
	url string

	server *httptest.Server
	mu     sync.RWMutex
	// reply is the body of every answer.
	reply   string
	waiting map[string]chan arrival
	// strays are wakes that nobody waited for.
	strays atomic.Int64
}

// The replies of an endpoint.
const (
	sayDone = `{"done":true}`
	sayOK   = `{}`
)

func newHooks(t *testing.T, reply string) *hooks {
	h := &hooks{reply: reply, waiting: map[string]chan arrival{}}
	h.server = httptest.NewServer(h)
	h.url = h.server.URL + "/hook"
	t.Cleanup(func() {
		h.server.CloseClientConnections()
		h.server.Close()
	})
	return h
}

// expect returns where the wakes of a stream come from now on. One that comes while another has not been taken is a
// stray.
func (h *hooks) expect(path string) chan arrival {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan arrival, 1)
	h.waiting[path] = c
	return c
}

// say sets the reply to the wakes that come from now on.
func (h *hooks) say(reply string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reply = reply
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answered := make(chan struct{})
	defer close(answered)
	a := arrival{at: time.Now(), answered: answered}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &a.Payload)
	}
	if err != nil {
		return // its sender died
	}
	h.mu.RLock()
	c, reply := h.waiting[a.PrimaryStream], h.reply
	h.mu.RUnlock()
	select {
	case c <- a: // nobody waits on a nil channel
	default:
		h.strays.Add(1)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, reply)
}
