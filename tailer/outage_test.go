package tailer

import (
	"net/http"
	"testing"
	"time"
)

func TestAfterALongOutageAStreamIsLookedAtWithinTheCheck(t *testing.T) {
	r := newRig(t, func(c *Config) { c.BackoffMin = 10 * time.Second }).start()
	r.idle("/a")
	failed := r.up.count(r.up.heads, "/a")
	r.up.setFault(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	r.up.CloseClientConnections()
	r.until("upstream has failed", func() bool { return r.up.count(r.up.heads, "/a") > failed+3 })
	r.up.setFault(nil)
	r.up.append("/a", "1")
	r.wake("/a", 2)
}
