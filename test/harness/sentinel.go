package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// RedisSentinel is a master, a replica and three sentinels that watch them, of a test's own.
type RedisSentinel struct {
	// URL is what REVEILLE_REDIS_URL takes.
	URL string
	// Nodes are the master and its replica, as they began.
	Nodes []*Redis

	t      testing.TB
	admins []*redis.SentinelClient
}

// sentinelMaster is the sentinels' name for the master.
const sentinelMaster = "main"

// StartRedisSentinel starts a master with a replica and three sentinels, and waits until all know each other. A master
// that does not answer for a second is failed over. args are added to each server's.
func StartRedisSentinel(t testing.TB, args ...string) *RedisSentinel {
	t.Helper()
	s := &RedisSentinel{
		t:     t,
		Nodes: []*Redis{StartRedis(t, append([]string{"--repl-diskless-sync-delay", "0"}, args...)...)},
	}
	host, port, _ := strings.Cut(s.Nodes[0].clusterAddr(), ":")
	s.Nodes = append(s.Nodes, StartRedis(t, append([]string{"--replicaof", host + " " + port}, args...)...))
	var addrs, encryption []string
	scheme := "redis"
	if s.Nodes[0].TLSAddr != "" {
		scheme, encryption = "rediss", args
	}
	for range 3 {
		dir := t.TempDir()
		conf := filepath.Join(dir, "sentinel.conf")
		text := fmt.Sprintf("dir %s\nsentinel monitor %[2]s %s %s 2\nsentinel down-after-milliseconds %[2]s "+
			"1000\nsentinel failover-timeout %[2]s 3000\n",
			dir, sentinelMaster, host, port)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		// Sentinels find each other by the one port that they announce: the encrypted one, if there is one.
		plain := FreePort(t)
		listen := []string{conf, "--port", strconv.Itoa(plain), "--bind", "127.0.0.1"}
		addr := loopback(plain)
		if encryption != nil {
			encrypted := FreePort(t)
			listen = append(append(listen, "--tls-port", strconv.Itoa(encrypted)), encryption...)
			addr = loopback(encrypted)
		}
		p, err := Start("sentinel", testOutput(t, "sentinel on "+addr), redisCommand(append(listen, "--sentinel")...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		admin := redis.NewSentinelClient(&redis.Options{Addr: loopback(plain), MaxRetries: -1})
		t.Cleanup(func() { _ = admin.Close() })
		ready(t, p, func(ctx context.Context) error { return admin.GetMasterAddrByName(ctx, sentinelMaster).Err() })
		s.admins, addrs = append(s.admins, admin), append(addrs, addr)
	}
	s.URL = scheme + "+sentinel://" + strings.Join(addrs, ",") + "/" + sentinelMaster
	s.AwaitWhole()
	return s
}

// Master returns the node that the sentinels take for the master.
func (s *RedisSentinel) Master() *Redis {
	s.t.Helper()
	master, err := s.master(s.admins[0])
	if err != nil {
		s.t.Fatal(err)
	}
	return master
}

func (s *RedisSentinel) master(admin *redis.SentinelClient) (*Redis, error) {
	addr, err := admin.GetMasterAddrByName(context.Background(), sentinelMaster).Result()
	if err != nil {
		return nil, err
	}
	for _, n := range s.Nodes {
		if n.clusterAddr() == net.JoinHostPort(addr[0], addr[1]) {
			return n, nil
		}
	}
	return nil, fmt.Errorf("the sentinels take %v for the master", addr)
}

// AwaitWhole waits until all sentinels know each other, the master and a replica that follows it.
func (s *RedisSentinel) AwaitWhole() {
	s.t.Helper()
	Eventually(s.t, startTimeout, "the sentinels and what they watch are whole", func() error {
		var master *Redis
		for _, admin := range s.admins {
			seen, err := admin.Master(context.Background(), sentinelMaster).Result()
			if err != nil {
				return err
			}
			if seen["flags"] != "master" || seen["num-other-sentinels"] != "2" || seen["num-slaves"] != "1" {
				return fmt.Errorf("%v", seen)
			}
			m, err := s.master(admin)
			if err != nil {
				return err
			}
			if master != nil && m != master {
				return errors.New("the sentinels disagree")
			}
			master = m
			replicas, err := admin.Replicas(context.Background(), sentinelMaster).Result()
			if err != nil || len(replicas) != 1 || replicas[0]["flags"] != "slave" ||
				replicas[0]["master-link-status"] != "ok" {
				return fmt.Errorf("%v %w", replicas, err)
			}
		}
		return nil
	})
}

// Failover makes the sentinels promote the replica, and waits until they have.
func (s *RedisSentinel) Failover() {
	s.t.Helper()
	was := s.Master()
	if err := s.admins[0].Failover(s.t.Context(), sentinelMaster).Err(); err != nil {
		s.t.Fatal(err)
	}
	s.AwaitMasterOtherThan(was)
}

// AwaitMasterOtherThan waits until the sentinels take another node for the master.
func (s *RedisSentinel) AwaitMasterOtherThan(was *Redis) {
	s.t.Helper()
	Eventually(s.t, 3*startTimeout, "another node is the master",
		True(func() bool { return s.Master() != was }, "it is the same"))
}
