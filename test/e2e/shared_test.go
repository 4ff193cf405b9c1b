package e2e

import (
	"sync"
	"testing"

	"reveille/test/harness"
)

// common are the servers that tests share which harm none of them: they are started once, with the calm settings.
var common struct {
	servers harness.Lifetime
	once    sync.Once
	env     *env
}

// shared returns the env that tests share. What a test makes there has a name of its own, and a test that needs other
// settings, ends a server or looks at what belongs to all takes start instead.
func shared(t *testing.T) *env {
	t.Helper()
	common.once.Do(func() {
		lasting := common.servers.Of(t)
		e := &env{ref: refServer(lasting, harness.RefOptions{})}
		if kindOfRedis == "cluster" {
			e.redis = ofCluster(t, harness.StartRedisCluster(lasting, 3, 1))
		} else {
			server := harness.StartRedis(lasting)
			e.redis = &database{URL: server.URL, servers: []*harness.Redis{server}}
		}
		e.rev = harness.StartReveille(lasting, e.settings(nil))
		common.env = e
	})
	if common.env == nil {
		t.Fatal("the servers that tests share did not start: see the first test that uses them")
	}
	e := *common.env
	redis := *e.redis
	redis.t, e.redis, e.t = t, &redis, t
	e.streams, e.gateway = harness.NewClient(t, e.ref.StreamRoot), harness.NewClient(t, e.rev.URL)
	harness.KeepOnFailure(t, "the shared Reveille", e.rev.Log)
	return &e
}

// beside is start with the stream server that tests share: for a test that needs a Reveille and a Redis of its own, and
// leaves the stream server alone. The streams of such a test have names of their own.
func beside(t *testing.T, o options) *env {
	t.Helper()
	e := &env{t: t, redis: startRedis(t), ref: shared(t).ref}
	return e.run(o)
}
