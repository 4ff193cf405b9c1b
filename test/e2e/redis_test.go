package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"reveille/redisstore"
	"reveille/test/harness"
)

// kindOfRedis says what the tests run against: one server, or a cluster of six nodes if it is "cluster".
var kindOfRedis = os.Getenv("REVEILLE_TEST_REDIS")

// database is the Redis of a test.
type database struct {
	// URL is what REVEILLE_REDIS_URL takes.
	URL string
	// servers are its one server, or all nodes of its cluster.
	servers []*harness.Redis
	// cluster is nil if it is one server.
	cluster *harness.RedisCluster

	t *testing.T
}

// ownRedis starts a Redis that no other test uses after this one, so that it can be harmed.
func ownRedis(t *testing.T, args ...string) *database {
	t.Helper()
	if kindOfRedis == "cluster" {
		return ofCluster(t, harness.StartRedisCluster(t, 3, 1, args...))
	}
	server := harness.StartRedis(t, args...)
	return &database{URL: server.URL, servers: []*harness.Redis{server}, t: t}
}

// startRedis returns an empty Redis that is the test's until its end.
func startRedis(t *testing.T) *database {
	t.Helper()
	if kindOfRedis == "cluster" {
		return ofCluster(t, clusters.take(t))
	}
	return ownRedis(t)
}

func ofCluster(t *testing.T, c *harness.RedisCluster) *database {
	return &database{URL: c.URL, servers: c.Nodes, cluster: c, t: t}
}

// as is the URL with a user and a password in it.
func (d *database) as(user string) string { return strings.Replace(d.URL, "://", "://"+user+"@", 1) }

// Client returns a client that is closed with the test.
func (d *database) Client() redis.UniversalClient {
	d.t.Helper()
	client, closeClient, err := redisstore.Connect(d.URL, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = closeClient() })
	return client
}

// closeChannels has nobody publish or hear anything until the test ends.
func (d *database) closeChannels() {
	d.t.Helper()
	allow := func(ctx context.Context, channels string) {
		for _, server := range d.servers {
			if err := server.Client().Do(ctx, "ACL", "SETUSER", "default", channels).Err(); err != nil {
				d.t.Fatal(err)
			}
		}
	}
	allow(d.t.Context(), "resetchannels")
	d.t.Cleanup(func() { allow(context.Background(), "allchannels") })
	// What was subscribed before is hung up with the change.
	for _, server := range d.servers {
		if n, err := server.Client().PubSubNumSub(d.t.Context(), "rv:{subs}:hints").Result(); err != nil ||
			n["rv:{subs}:hints"] != 0 {
			d.t.Fatalf("%s still has listeners: %v, %v", server.URL, n, err)
		}
	}
}

// loseStreams deletes everything but the subscriptions: all partitions, each at once as a server loses it, and how far
// the registry stream was read.
func (d *database) loseStreams() {
	d.t.Helper()
	lost, rdb := map[string][]string{}, d.Client()
	for _, server := range d.servers {
		keys := server.Client().Scan(d.t.Context(), 0, "rv:*", 1000).Iterator()
		for keys.Next(d.t.Context()) {
			key := keys.Val()
			tag := key[:strings.Index(key, "}")]
			if tag != "rv:{subs" || strings.Contains(key, "registry") {
				lost[tag] = append(lost[tag], key)
			}
		}
		if err := keys.Err(); err != nil {
			d.t.Fatal(err)
		}
	}
	for _, keys := range lost {
		if err := rdb.Unlink(d.t.Context(), keys...).Err(); err != nil {
			d.t.Fatal(err)
		}
	}
}

// Kill ends all servers without warning, Stop asks them to end, Restart starts them again.
func (d *database) Kill() {
	if d.cluster != nil {
		d.cluster.Kill()
		return
	}
	d.servers[0].Kill()
}

func (d *database) Stop() error {
	if d.cluster != nil {
		return d.cluster.Stop()
	}
	return d.servers[0].Stop()
}

func (d *database) Restart() {
	d.t.Helper()
	if d.cluster != nil {
		d.cluster.Restart()
		return
	}
	d.servers[0].Restart()
}

// clusters are those that are started, because a cluster takes longer to start than most tests take.
var clusters clusterPool

type clusterPool struct {
	servers harness.Lifetime

	mu   sync.Mutex
	free []*harness.RedisCluster
}

// take returns an empty cluster that is given back once everything that the test starts after it has ended.
func (p *clusterPool) take(t *testing.T) *harness.RedisCluster {
	t.Helper()
	p.mu.Lock()
	var c *harness.RedisCluster
	if n := len(p.free); n > 0 {
		c, p.free = p.free[n-1], p.free[:n-1]
	}
	p.mu.Unlock()
	if c == nil {
		c = harness.StartRedisCluster(p.servers.Of(t), 3, 1)
	}
	t.Cleanup(func() {
		if err := c.Flush(); err != nil {
			t.Errorf("the test left its cluster unusable: %v", err)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, c)
	})
	return c
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, fault := range append(common.servers.End(), clusters.servers.End()...) {
		fmt.Fprintln(os.Stderr, "servers that tests share:", fault)
		code = max(code, 1)
	}
	os.Exit(code)
}
