package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"reveille/test/harness"
)

// TestSubscriptionsThatHangTakeNothingFromANewOne has two endpoints hang that are sent events of 64 streams each. The
// first event of a new subscription is taken before any of those requests has ended.
func TestSubscriptionsThatHangTakeNothingFromANewOne(t *testing.T) {
	t.Parallel()
	const hanging, streams = 2, 64
	e := with(t, startRedis(t), nil)
	root := "/" + name(t)
	var began, ended atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		began.Add(1)
		<-r.Context().Done()
		ended.Add(1)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	subscribe := func(id, pattern, webhook string) {
		t.Helper()
		body := fmt.Sprintf(`{"mode":"push","webhook":%q,"timeout":"60s"}`, webhook)
		if a := e.gateway.PutSubscription(pattern, id, body); a.Status != http.StatusCreated {
			t.Fatalf("PUT: %d %s", a.Status, a.Body)
		}
	}
	for k := range hanging {
		folder := fmt.Sprintf("%s/hangs-%d", root, k)
		subscribe(fmt.Sprintf("hangs-%d", k), folder+"/*", server.URL)
		for n := range streams {
			path := fmt.Sprintf("%s/%d", folder, n)
			e.gateway.Create(path)
			e.gateway.Append(path, `{"n":1}`)
		}
	}
	harness.Eventually(t, harness.Wait, "they hang", func() error {
		if n := began.Load(); n < hanging*streams/2 {
			return fmt.Errorf("%d requests came", n)
		}
		return nil
	})
	r := harness.NewReceiver(t)
	subscribe("new", root+"/new/*", r.URL)
	e.gateway.Create(root + "/new/a")
	e.gateway.Append(root+"/new/a", `{"n":1}`)
	r.Await(root+"/new/a", 1)
	if n := ended.Load(); n > 0 {
		t.Errorf("%d requests of those that hang had ended before the new subscription had its event", n)
	}
}
