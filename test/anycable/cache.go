package anycable

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Cache is a cache in front of a Server that does as the answers allow, whatever the requests ask for, like those of
// many content delivery networks. A HEAD is answered from what a GET has brought.
type Cache struct {
	Next http.Handler
	// ByPath has it take requests for equal that differ in their query.
	ByPath bool

	mu   sync.Mutex
	kept map[string]kept
	// hits counts the answers from the cache.
	hits int
}

type kept struct {
	at     time.Time
	answer *httptest.ResponseRecorder
}

// Hits is how many requests were answered by what was kept.
func (c *Cache) Hits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits
}

// ServeHTTP implements http.Handler.
func (c *Cache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Path
	if !c.ByPath {
		key = r.URL.RequestURI()
	}
	c.mu.Lock()
	k, ok := c.kept[key]
	if ok {
		c.hits++
	}
	c.mu.Unlock()
	if !ok {
		k = kept{time.Now(), httptest.NewRecorder()}
		c.Next.ServeHTTP(k.answer, r)
		public := strings.HasPrefix(k.answer.Header().Get("Cache-Control"), "public")
		if public && k.answer.Code < 300 && r.Context().Err() == nil {
			c.mu.Lock()
			if c.kept == nil {
				c.kept = map[string]kept{}
			}
			c.kept[key] = k
			c.mu.Unlock()
		}
	}
	for name, values := range k.answer.Header() {
		w.Header()[name] = values
	}
	if ok {
		w.Header().Set("Age", strconv.Itoa(1+int(time.Since(k.at).Seconds())))
	}
	w.WriteHeader(k.answer.Code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(k.answer.Body.Bytes())
	}
}
