package harness

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots is how many hash slots a cluster has.
const slots = 16384

// RedisCluster is a Redis Cluster of a test's own.
type RedisCluster struct {
	// URL is what REVEILLE_REDIS_URL takes.
	URL string
	// Nodes are all nodes, first the ones that began as masters. Each can be killed, paused and started again by
	// itself.
	Nodes []*Redis

	t        testing.TB
	replicas int
}

// StartRedisCluster starts a Redis Cluster of that many masters with that many replicas each, and waits until it is
// whole. A node that does not answer for a second and a half is failed over. args are added to each server's.
func StartRedisCluster(t testing.TB, masters, replicas int, args ...string) *RedisCluster {
	t.Helper()
	c := &RedisCluster{t: t, replicas: replicas}
	var addrs []string
	for range masters * (1 + replicas) {
		bus := FreePort(t)
		n := newRedis(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus), "--cluster-node-timeout", "1500",
			"--repl-diskless-sync-delay", "0",
		}, args...)...)
		var id [20]byte
		_, _ = rand.Read(id[:])
		n.id, n.bus = hex.EncodeToString(id[:]), bus
		c.Nodes = append(c.Nodes, n)
		addrs = append(addrs, n.clusterAddr())
	}
	// Each node begins with the finished table: this is quicker than to let them meet.
	for _, n := range c.Nodes {
		if err := os.WriteFile(filepath.Join(n.dir, "nodes.conf"), c.table(n, masters), 0o600); err != nil {
			t.Fatal(err)
		}
		n.launch()
	}
	for _, n := range c.Nodes {
		n.await()
	}
	c.AwaitWhole()
	scheme := "redis"
	if c.Nodes[0].TLSAddr != "" {
		scheme = "rediss"
	}
	c.URL = scheme + "+cluster://" + strings.Join(addrs, ",")
	return c
}

// clusterAddr returns the address of a node that the cluster announces.
func (r *Redis) clusterAddr() string {
	if r.TLSAddr != "" {
		return r.TLSAddr
	}
	return r.Addr
}

// table returns the nodes.conf that a node begins with.
func (c *RedisCluster) table(of *Redis, masters int) []byte {
	var b strings.Builder
	for i, n := range c.Nodes {
		flags := ""
		if n == of {
			flags = "myself,"
		}
		role, epoch, share := "slave "+c.Nodes[i%masters].id, i%masters+1, ""
		if i < masters {
			role, share = "master -", fmt.Sprintf(" %d-%d", i*slots/masters, (i+1)*slots/masters-1)
		}
		fmt.Fprintf(&b, "%s %s@%d %s%s 0 0 %d connected%s\n", n.id, n.clusterAddr(), n.bus, flags, role, epoch, share)
	}
	fmt.Fprintf(&b, "vars currentEpoch %d lastVoteEpoch 0\n", masters)
	return []byte(b.String())
}

// Client returns a client for the cluster that is closed with the test.
func (c *RedisCluster) Client() *redis.ClusterClient {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// AwaitWhole waits until all nodes that run agree that every slot is served, and every replica follows its master.
func (c *RedisCluster) AwaitWhole() {
	c.t.Helper()
	running := slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Redis) bool {
		select {
		case <-n.Done():
			return true
		default:
			return false
		}
	})
	Eventually(c.t, startTimeout, "the cluster is whole", func() error {
		var all string
		for _, n := range running {
			view, err := n.clusterView(len(c.Nodes) == len(running))
			if err != nil {
				return fmt.Errorf("%s: %w", n.Addr, err)
			}
			if all == "" {
				all = view
			}
			if view != all {
				return fmt.Errorf("%s says\n%s, another\n%s", n.Addr, view, all)
			}
		}
		return nil
	})
}

// clusterView returns the masters and their slots, as a node sees them. It is an error if the node does not see the
// cluster as working. With complete, it is also an error if any node is amiss.
func (r *Redis) clusterView(complete bool) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	admin := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1})
	defer func() { _ = admin.Close() }()
	info, err := admin.ClusterInfo(ctx).Result()
	if err != nil {
		return "", err
	}
	if !strings.Contains(info, "cluster_state:ok") ||
		!strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r", slots)) {
		return "", errors.New(info)
	}
	nodes, err := admin.ClusterNodes(ctx).Result()
	if err != nil {
		return "", err
	}
	var masters []string
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return "", errors.New(nodes)
		}
		if complete && (strings.Contains(f[2], "fail") || strings.Contains(f[2], "handshake") || f[7] != "connected") {
			return "", errors.New(nodes)
		}
		if complete && strings.Contains(f[2], "master") && len(f) == 8 {
			return "", fmt.Errorf("a node that has lost its slots is not known for a replica yet:\n%s", nodes)
		}
		if strings.Contains(f[2], "master") && len(f) > 8 {
			masters = append(masters, f[0]+" "+strings.Join(f[8:], " "))
		}
	}
	replication, err := admin.Info(ctx, "replication").Result()
	if err != nil {
		return "", err
	}
	if strings.Contains(replication, "role:slave") && !strings.Contains(replication, "master_link_status:up") {
		return "", errors.New(replication)
	}
	slices.Sort(masters)
	return strings.Join(masters, "\n"), nil
}

// Slot of a key.
func (c *RedisCluster) Slot(key string) int {
	c.t.Helper()
	slot, err := c.anyone().ClusterKeySlot(c.t.Context(), key).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	return int(slot)
}

// anyone is a client of a node that runs.
func (c *RedisCluster) anyone() *redis.Client {
	c.t.Helper()
	for _, n := range c.Nodes {
		select {
		case <-n.Done():
		default:
			return n.Client()
		}
	}
	c.t.Fatal("no node runs")
	return nil
}

// Master is the node that serves a slot; nil if there is none.
func (c *RedisCluster) Master(slot int) *Redis {
	master, _ := c.serving(slot)
	return master
}

// Replica returns a replica of the master of a slot. It waits until there is one.
func (c *RedisCluster) Replica(slot int) (replica *Redis) {
	c.t.Helper()
	Eventually(c.t, startTimeout, "there is a replica", True(func() bool {
		_, replica = c.serving(slot)
		return replica != nil
	}, "there is none"))
	return replica
}

func (c *RedisCluster) serving(slot int) (master, replica *Redis) {
	c.t.Helper()
	nodes, err := c.anyone().ClusterNodes(c.t.Context()).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	byID := func(id string) *Redis {
		at := slices.IndexFunc(c.Nodes, func(n *Redis) bool { return n.id == id })
		if at < 0 {
			c.t.Fatalf("node %s is none of the cluster's", id)
		}
		return c.Nodes[at]
	}
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		for _, share := range f[min(8, len(f)):] {
			first, last, found := strings.Cut(share, "-")
			if !found {
				last = first
			}
			from, err1 := strconv.Atoi(first)
			to, err2 := strconv.Atoi(last)
			if err1 == nil && err2 == nil && from <= slot && slot <= to { // others are slots on the move
				master = byID(f[0])
			}
		}
	}
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); master != nil && len(f) > 3 && f[3] == master.id &&
			!strings.Contains(f[2], "fail") {
			replica = byID(f[0])
		}
	}
	return master, replica
}

// Failover makes a replica take over from the master of a slot, and waits until all have noticed. The master loses
// nothing.
func (c *RedisCluster) Failover(slot int) {
	c.t.Helper()
	replica := c.Replica(slot)
	admin := replica.Client()
	Eventually(c.t, startTimeout, "the replica is the master", func() error {
		if c.Master(slot) == replica {
			return nil
		}
		if err := admin.ClusterFailover(c.t.Context()).Err(); err != nil {
			return err
		}
		// The other masters may not vote yet if they have just held an election. Then it gives up after 5 s.
		return Poll(6*time.Second, True(func() bool { return c.Master(slot) == replica }, "it is not"))
	})
	c.AwaitWhole()
}

// BeginMigration opens a slot for its move from one master to another.
func (c *RedisCluster) BeginMigration(slot int, from, to *Redis) {
	c.t.Helper()
	c.setSlot(to, slot, "IMPORTING", from.id)
	c.setSlot(from, slot, "MIGRATING", to.id)
}

// MigrateKey moves one key of an open slot. It returns false if no key is left.
func (c *RedisCluster) MigrateKey(slot int, from, to *Redis) bool {
	c.t.Helper()
	ctx := c.t.Context()
	admin := from.Client()
	keys, err := admin.ClusterGetKeysInSlot(ctx, slot, 1).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	if len(keys) == 0 {
		return false
	}
	host, port, _ := strings.Cut(to.Addr, ":")
	if err := admin.Migrate(ctx, host, port, keys[0], 0, Wait).Err(); err != nil {
		c.t.Fatal(err)
	}
	return true
}

// EndMigration gives a slot whose keys have moved to its new master.
func (c *RedisCluster) EndMigration(slot int, from, to *Redis) {
	c.t.Helper()
	c.setSlot(to, slot, "NODE", to.id)
	c.setSlot(from, slot, "NODE", to.id)
	c.AwaitWhole()
}

func (c *RedisCluster) setSlot(n *Redis, slot int, args ...any) {
	c.t.Helper()
	if err := n.Client().Do(c.t.Context(), append([]any{"CLUSTER", "SETSLOT", slot}, args...)...).Err(); err != nil {
		c.t.Fatal(err)
	}
}

// Flush deletes everything, so that another test can use the cluster.
func (c *RedisCluster) Flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, n := range c.Nodes {
		admin := redis.NewClient(&redis.Options{Addr: n.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
		err := admin.FlushAll(ctx).Err()
		_ = admin.Close()
		if err != nil && !redis.IsReadOnlyError(err) { // a replica
			return fmt.Errorf("flush %s: %w", n.Addr, err)
		}
	}
	return nil
}

// Kill ends all nodes without warning.
func (c *RedisCluster) Kill() {
	for _, n := range c.Nodes {
		n.Signal(os.Kill)
	}
	for _, n := range c.Nodes {
		n.Kill()
	}
}

// Stop asks all nodes to end and waits for it.
func (c *RedisCluster) Stop() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Stop())
	}
	return errors.Join(errs...)
}

// Restart starts all nodes again, after a Kill or a Stop, and waits until the cluster is whole.
func (c *RedisCluster) Restart() {
	c.t.Helper()
	for _, n := range c.Nodes {
		n.launch()
	}
	for _, n := range c.Nodes {
		n.await()
	}
	c.AwaitWhole()
}
