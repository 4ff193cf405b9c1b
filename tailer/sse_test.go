package tailer

import (
	"io"
	"net/http"
	"testing"

	"reveille/tailer/upstream"
)

func TestAnSSEFrameCutInTheMiddleIsReadAgain(t *testing.T) {
	for _, half := range []string{
		"event: control\ndata: {\"streamNextOffset\":\"0000000000000000_00000",
		"event: control\ndata: {\"streamNextOffset\":\"zzzz\"}", // never ended, so never sent
		"event: data\ndata: [{\"n\":1}]\n\nevent: con",
		": comment",
		"",
	} {
		t.Run(half, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Upstream.TailMode = upstream.TailSSE }).start()
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
				_, _ = io.WriteString(w, half)
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			})
			r.up.append("/a", "1")
			r.done(r.wake("/a", 2))
			r.up.append("/a", "2")
			r.wake("/a", 3)
		})
	}
}
