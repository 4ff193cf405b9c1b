package tailer

import (
	"fmt"
	"net/http"
	"testing"
)

func TestAnSSEFrameCutInTheMiddleIsReadAgain(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SSE = true }).start()
	r.idle("/a")
	cut := 0
	r.up.setFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodHead {
			return false
		}
		r.up.mu.Lock()
		defer r.up.mu.Unlock()
		if cut++; cut > 3 {
			return false
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: control\ndata: {\"streamNextOffset\":\"0000000000000000_00000")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	r.up.append("/a", "1")
	r.done(r.wake("/a", 2))
	r.up.append("/a", "2")
	r.wake("/a", 3)
}
