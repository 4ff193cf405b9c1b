package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// slots is how many hash slots a cluster has.
const slots = 16384

// StartRedisCluster starts a Redis Cluster of that many masters and returns what REVEILLE_REDIS_URL takes.
func StartRedisCluster(t testing.TB, masters int) (url string, nodes []*Redis) {
	t.Helper()
	ctx := t.Context()
	var addrs []string
	for range masters {
		nodes = append(nodes, StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(FreePort(t)), "--cluster-node-timeout", "2000"))
		addrs = append(addrs, nodes[len(nodes)-1].Addr)
	}
	for i, n := range nodes {
		c := n.Client()
		if err := c.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
			t.Fatal(err)
		}
		host, port, _ := strings.Cut(nodes[0].Addr, ":")
		bus := nodes[0].busPort()
		if err := c.Do(ctx, "CLUSTER", "MEET", host, port, bus).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		c := n.Client()
		ready(t, n.Process, func(ctx context.Context) error { return wholeCluster(ctx, c, masters) })
	}
	return "redis+cluster://" + strings.Join(addrs, ","), nodes
}

func (r *Redis) busPort() string {
	for i, a := range r.args {
		if a == "--cluster-port" {
			return r.args[i+1]
		}
	}
	return ""
}

func wholeCluster(ctx context.Context, c *redis.Client, nodes int) error {
	info, err := c.ClusterInfo(ctx).Result()
	switch {
	case err != nil:
		return err
	case !strings.Contains(info, "cluster_state:ok"), !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", nodes)):
		return errors.New("the cluster is not whole yet")
	}
	return nil
}

// StartRedisSentinel starts a Redis with one sentinel that watches it and returns what REVEILLE_REDIS_URL takes.
func StartRedisSentinel(t testing.TB) (url string) {
	t.Helper()
	host, port, _ := strings.Cut(StartRedis(t).Addr, ":")
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "sentinel monitor main %s %s 1\n", host, port), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := FreePort(t)
	cmd := redisCommand(conf, "--port", strconv.Itoa(sentinel), "--bind", "127.0.0.1", "--sentinel")
	p, err := Start("sentinel", testOutput(t, "sentinel on "+loopback(sentinel)), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	c := redis.NewSentinelClient(&redis.Options{Addr: loopback(sentinel), MaxRetries: -1})
	defer func() { _ = c.Close() }()
	ready(t, p, func(ctx context.Context) error { return c.GetMasterAddrByName(ctx, "main").Err() })
	return "redis+sentinel://" + loopback(sentinel) + "/main"
}
