package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"reveille/test/anycable"
	"reveille/test/harness"
)

func TestAnUpstreamThatIsNoStreamServerIsNotUp(t *testing.T) {
	t.Parallel()
	const noServer = "no stream server answers at REVEILLE_UPSTREAM_URL"
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		says   string
	}{
		{
			"a page for everything",
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
			"it answered 200 without Stream-Next-Offset: it is no stream server",
		},
		{"404 for everything", http.NotFound, "it answered 404 as any web server may"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var real atomic.Pointer[anycable.Server]
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if s := real.Load(); s != nil {
					s.ServeHTTP(w, r)
					return
				}
				tt.answer(w, r)
			}))
			t.Cleanup(srv.Close)
			e := &env{t: t, redis: startRedis(t)}
			e.rev = harness.StartReveille(t, e.withUpstream(srv.URL+"/ds"))
			e.awaitMetrics(t, map[string]float64{
				"reveille_upstream_up": 0, `reveille_upstream_requests_total{kind="probe",outcome="ok"}`: 0,
			})
			e.awaitLog(t, noServer, tt.says)
			real.Store(anycable.New(anycable.Options{}))
			e.awaitMetrics(t, map[string]float64{"reveille_upstream_up": 1})
			e.awaitLog(t, "the stream server answers", `"dialect":"anycable"`)
		})
	}
	t.Run("nobody", func(t *testing.T) {
		t.Parallel()
		e := &env{t: t, redis: startRedis(t)}
		e.rev = harness.StartReveille(t, e.withUpstream("http://127.0.0.1:1"))
		e.awaitMetrics(t, map[string]float64{"reveille_upstream_up": 0})
		e.awaitLog(t, noServer, "connection refused")
	})
}

// awaitLog waits for a log line that holds all of some texts.
func (e *env) awaitLog(t *testing.T, texts ...string) {
	t.Helper()
	harness.Eventually(t, soon, "a log line", harness.True(func() bool {
		for line := range strings.Lines(e.rev.Log()) {
			if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(line, s) }) {
				return true
			}
		}
		return false
	}, "none holds %q", texts))
}

// withUpstream are settings for any upstream.
func (e *env) withUpstream(upstream string) map[string]string {
	return map[string]string{"REVEILLE_UPSTREAM_URL": upstream, "REVEILLE_REDIS_URL": e.redis.URL}
}
