// Package e2e tests Reveille as its users run it: the built program beside a real redis-server and the unmodified reference
// server, with webhooks to a real HTTP worker. Each test is named after the rule that it holds.
package e2e

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"reveille/test/harness"
)

// soon is how long something may take that should happen at once; it is generous because the machine may be busy.
const soon = 30 * time.Second

// quiet is how long nothing must happen for a test to believe that nothing will.
const quiet = 400 * time.Millisecond

// env is a stream server, a Redis and a Reveille, all of a test's own.
type env struct {
	t     *testing.T
	redis *database
	ref   *harness.RefServer
	rev   *harness.Reveille
	// streams writes straight to the stream server, behind Reveille's back; gateway writes through Reveille.
	streams *harness.Client
	gateway *harness.Client
}

// options of an env.
type options struct {
	ref harness.RefOptions
	// settings on top of the fast ones.
	settings map[string]string
	// upstream, if set, returns what Reveille takes for the stream server at a URL: something in between.
	upstream func(url string) string
}

// fast are times that let a test see a timeout. They are long enough for a busy machine not to run into them otherwise.
var fast = map[string]string{
	"REVEILLE_WAKING_TIMEOUT":    "2s",
	"REVEILLE_LIVENESS_TIMEOUT":  "2s",
	"REVEILLE_TAIL_CHECK":        "500ms",
	"REVEILLE_STREAM_GONE_GRACE": "3s",
}

func start(t *testing.T, o options) *env {
	t.Helper()
	e := &env{t: t, redis: startRedis(t), ref: harness.StartRefServer(t, o.ref)}
	upstream := e.ref.StreamRoot
	if o.upstream != nil {
		upstream = o.upstream(upstream)
	}
	settings := map[string]string{"REVEILLE_UPSTREAM_URL": upstream, "REVEILLE_REDIS_URL": e.redis.URL}
	maps.Copy(settings, fast)
	maps.Copy(settings, o.settings)
	e.rev = harness.StartReveille(t, settings)
	e.streams = harness.NewClient(t, e.ref.StreamRoot)
	e.gateway = harness.NewClient(t, e.rev.URL)
	return e
}

var names atomic.Int64

// name is one that no other test of the process uses, so that tests can share servers.
func name(t *testing.T) string {
	return fmt.Sprintf("t%d-%s", names.Add(1), strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, t.Name())))
}
