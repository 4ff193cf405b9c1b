package redisstore

import (
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"reveille/test/harness"
)

// Servers are those that the tests of this package share. A test that ends, pauses or configures its own starts it.
var Servers harness.Lifetime

var idle struct {
	sync.Mutex
	servers []*harness.Redis
}

// EmptyRedis returns a server that is empty and knows no script, for this test alone.
func EmptyRedis(t *testing.T) *harness.Redis {
	t.Helper()
	idle.Lock()
	var r *harness.Redis
	if n := len(idle.servers); n > 0 {
		r, idle.servers = idle.servers[n-1], idle.servers[:n-1]
	}
	idle.Unlock()
	if r == nil {
		r = harness.StartRedis(Servers.Of(t))
	} else {
		empty(t, r)
	}
	t.Cleanup(func() {
		if t.Failed() { // it may be in any state
			r.Kill()
			return
		}
		idle.Lock()
		defer idle.Unlock()
		idle.servers = append(idle.servers, r)
	})
	return r
}

func empty(t *testing.T, r *harness.Redis) {
	t.Helper()
	admin := redis.NewClient(&redis.Options{Addr: r.Addr, ReadTimeout: harness.Wait})
	defer func() { _ = admin.Close() }()
	if _, err := admin.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.FlushAll(t.Context())
		p.ScriptFlush(t.Context())
		p.FunctionFlush(t.Context())
		p.ConfigResetStat(t.Context())
		return nil
	}); err != nil {
		t.Fatalf("empty the server %s: %v", r.Addr, err)
	}
}

// common is what the tests use one after the other of which there is one.
type common[T any] struct {
	mu      sync.Mutex
	started *T
}

// take returns it until the test ends. Each test has it empty.
func (c *common[T]) take(t *testing.T, start func(testing.TB) *T, nodes func(*T) []*harness.Redis) *T {
	t.Helper()
	c.mu.Lock()
	t.Cleanup(c.mu.Unlock)
	if c.started == nil {
		c.started = start(Servers.Of(t))
		return c.started
	}
	for _, n := range nodes(c.started) {
		empty(t, n)
	}
	return c.started
}

var (
	cluster  common[harness.RedisCluster]
	sentinel common[harness.RedisSentinel]
)

// EmptyCluster returns a cluster of three masters that is empty. A test that needs sentinels as well takes this first.
func EmptyCluster(t *testing.T) *harness.RedisCluster {
	t.Helper()
	return cluster.take(t,
		func(t testing.TB) *harness.RedisCluster { return harness.StartRedisCluster(t, 3, 0) },
		func(c *harness.RedisCluster) []*harness.Redis { return c.Nodes })
}

// EmptySentinel returns a master with a replica and sentinels; it is empty.
func EmptySentinel(t *testing.T) *harness.RedisSentinel {
	t.Helper()
	return sentinel.take(t,
		func(t testing.TB) *harness.RedisSentinel { return harness.StartRedisSentinel(t) },
		func(s *harness.RedisSentinel) []*harness.Redis { return []*harness.Redis{s.Master()} })
}
