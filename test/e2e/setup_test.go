// Package e2e tests Reveille as its users run it: the built program beside a real redis-server and the unmodified
// reference server, with webhooks to a real HTTP worker. Each test is named after the rule that it holds.
package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"reveille/redisstore"
	"reveille/test/harness"
)

// soon is how long something may take that should happen at once; it is generous because the machine may be busy.
const soon = harness.Wait

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
	// settings on top of the calm ones.
	settings map[string]string
	// upstream, if set, returns what Reveille takes for the stream server at a URL: something in between.
	upstream func(url string) string
}

// calm are the settings of every test that names no others: time-outs that no test runs into, however slow the machine
// is, and frequent looks at tails. A wake whose beginning Redis carried out and could not tell comes when the waking
// time-out is over, so that is shorter than tests wait.
var calm = map[string]string{
	"REVEILLE_WAKING_TIMEOUT":    "90s",
	"REVEILLE_LIVENESS_TIMEOUT":  "10m",
	"REVEILLE_WEBHOOK_TIMEOUT":   "5m",
	"REVEILLE_TAIL_CHECK":        "500ms",
	"REVEILLE_STREAM_GONE_GRACE": "5m",
}

// withRegistry has every stream server keep a registry stream and every Reveille read it, on top of what else a test
// asks for: streams and their ends are then heard of in two ways at once.
var withRegistry = os.Getenv("REVEILLE_TEST_REGISTRY") != ""

// registry are the settings that have it read.
var registry = map[string]string{"REVEILLE_REGISTRY_STREAM": "/__registry__"}

// refServer starts a stream server that lasts as long as t.
func refServer(t testing.TB, o harness.RefOptions) *harness.RefServer {
	t.Helper()
	o.Registry = o.Registry || withRegistry
	return harness.StartRefServer(t, o)
}

// usual are the settings of a Reveille on these servers, with more on top.
func usual(streamRoot, redisURL string, more map[string]string) map[string]string {
	s := map[string]string{"REVEILLE_UPSTREAM_URL": streamRoot, "REVEILLE_REDIS_URL": redisURL}
	maps.Copy(s, calm)
	if withRegistry {
		maps.Copy(s, registry)
	}
	maps.Copy(s, more)
	return s
}

// brief are time-outs that a test sees pass. Only a test that waits for them takes them, and it must hold if they pass
// earlier than it thinks: any process may pause for ten seconds at any moment.
var brief = map[string]string{
	"REVEILLE_WAKING_TIMEOUT":    "1s",
	"REVEILLE_LIVENESS_TIMEOUT":  "1s",
	"REVEILLE_STREAM_GONE_GRACE": "1s",
}

func start(t *testing.T, o options) *env {
	t.Helper()
	e := &env{t: t, redis: startRedis(t), ref: refServer(t, o.ref)}
	return e.run(o)
}

// run starts the Reveille of an env that has its other servers.
func (e *env) run(o options) *env {
	e.t.Helper()
	e.prepare(o)
	e.rev.Start()
	return e
}

// prepare is run that does not start Reveille yet.
func (e *env) prepare(o options) {
	e.t.Helper()
	upstream := e.ref.StreamRoot
	if o.upstream != nil {
		upstream = o.upstream(upstream)
	}
	e.rev = harness.NewReveille(e.t, usual(upstream, e.redis.URL, o.settings))
	e.streams = harness.NewClient(e.t, e.ref.StreamRoot)
	e.gateway = harness.NewClient(e.t, e.rev.URL)
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

// storeOf reads what Reveille keeps in a Redis.
func storeOf(r *database) *redisstore.Store {
	return redisstore.New(r.Client(), redisstore.Options{})
}

// operator returns a client of the operator port.
func (e *env) operator() *harness.Client {
	e.t.Helper()
	return harness.NewClient(e.t, e.rev.Operator)
}

// nameStreams asks the operator port to do something with streams.
func (e *env) nameStreams(method string, paths ...string) harness.Response {
	e.t.Helper()
	body := `{"streams":["` + strings.Join(paths, `","`) + `"]}`
	return e.operator().Do(method, "/api/v1/streams", body, "Content-Type", "application/json")
}

func (e *env) mustNameStreams(method string, paths ...string) {
	e.t.Helper()
	if res := e.nameStreams(method, paths...); res.Status != http.StatusOK {
		e.t.Fatalf("%s /api/v1/streams: status %d: %s", method, res.Status, res.Body)
	}
}

// with is start on a Redis of the test's own.
func with(t *testing.T, r *database, settings map[string]string) *env {
	t.Helper()
	e := &env{t: t, redis: r, ref: refServer(t, harness.RefOptions{})}
	e.streams = harness.NewClient(t, e.ref.StreamRoot)
	e.rev = harness.StartReveille(t, e.settings(settings))
	e.gateway = harness.NewClient(t, e.rev.URL)
	return e
}

// settings of one more Reveille on the same servers.
func (e *env) settings(more map[string]string) map[string]string {
	return usual(e.ref.StreamRoot, e.redis.URL, more)
}
