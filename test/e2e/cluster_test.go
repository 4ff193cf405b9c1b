package e2e

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

// TestNoWakeIsLostWhileACluster holds what is said of a cluster in the README, under traffic.
func TestNoWakeIsLostWhileACluster(t *testing.T) {
	if kindOfRedis != "cluster" {
		t.Skip("it needs a cluster: REVEILLE_TEST_REDIS=cluster")
	}
	harness.Long(t) // the tests of package redisstore hold it for the parts of a script, and for failovers
	t.Parallel()
	e := with(t, ownRedis(t), nil)
	cluster := e.redis.cluster
	root := "/" + name(t)
	f := e.subscriber(root + "/*")
	var paths []string
	for i := range 6 {
		paths = append(paths, fmt.Sprint(root, "/", i))
		e.gateway.Create(paths[i])
	}
	other := func(than *harness.Redis) *harness.Redis {
		for _, slot := range []int{0, 8000, 16000} {
			if m := cluster.Master(slot); m != than {
				return m
			}
		}
		t.Fatal("there is only one master")
		return nil
	}
	for _, c := range []struct {
		name  string
		fault func(t *testing.T, traffic func())
	}{
		{"moves a partition, key by key", func(t *testing.T, traffic func()) {
			for _, path := range paths[:2] {
				slot := slotOf(cluster, path)
				from := cluster.Master(slot)
				to := other(from)
				cluster.BeginMigration(slot, from, to)
				for traffic(); cluster.MigrateKey(slot, from, to); {
					traffic()
				}
				cluster.EndMigration(slot, from, to)
			}
		}},
		{"moves the subscriptions, key by key", func(t *testing.T, traffic func()) {
			slot := cluster.Slot("rv:{subs}:")
			from := cluster.Master(slot)
			to := other(from)
			cluster.BeginMigration(slot, from, to)
			for traffic(); cluster.MigrateKey(slot, from, to); {
				traffic()
			}
			cluster.EndMigration(slot, from, to)
		}},
		{"hands every master's slots to its replica", func(t *testing.T, traffic func()) {
			for _, slot := range []int{0, 8000, 16000} {
				traffic()
				cluster.Failover(slot)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			stop := make(chan struct{})
			written := make(chan struct{}, 1)
			var writer sync.WaitGroup
			writer.Go(func() {
				// Faster than a person reads, slower than a busy machine can bear.
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for ; ; <-tick.C {
					for i, path := range paths {
						client := []*harness.Client{e.streams, e.gateway}[i%2]
						_, err := client.Try(t.Context(), http.MethodPost, path, `{}`, "Content-Type",
							"application/json")
						if err != nil {
							t.Errorf("append: %v", err)
							return
						}
					}
					select {
					case written <- struct{}{}:
					case <-stop:
						return
					default:
					}
				}
			})
			// traffic waits until every stream got an event that was appended after the call.
			traffic := func() {
				for range 3 {
					<-written
				}
			}
			c.fault(t, traffic)
			traffic()
			close(stop)
			writer.Wait()
			for _, path := range paths {
				f.awaitIdle(path, e.streams.Tail(path))
				assertEpochs(t, f, path)
			}
		})
	}
	at := e.streams.Tail(paths[0])
	f.wakesOnAppend(paths[0], at)
	if c, err := f.consumerOf(paths[0]); err != nil || c.State != fsm.Idle {
		t.Errorf("afterwards the consumer is %+v, %v", c, err)
	}
}

// slotOf is that of the consumers of a stream.
func slotOf(c *harness.RedisCluster, path string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(path))
	return c.Slot(fmt.Sprintf("rv:{%d}:", h.Sum32()%redisstore.DefaultPartitions))
}

// TestWhatAPushCameToIsStoredWithoutTheNodeOfItsEndpoint freezes the node that keeps subscriptions and how endpoints
// do, and which has no replica. What a push came to is kept by another.
func TestWhatAPushCameToIsStoredWithoutTheNodeOfItsEndpoint(t *testing.T) {
	if kindOfRedis != "cluster" {
		t.Skip("it needs a cluster: REVEILLE_TEST_REDIS=cluster")
	}
	t.Parallel()
	cluster := harness.StartRedisCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	e := with(t, ofCluster(t, cluster), nil)
	p := e.pushes(t, map[string]any{"retry": map[string]any{"max_attempts": 100, "initial": "1s", "factor": 1}})
	away := cluster.Master(cluster.Slot("rv:{subs}:"))
	path := p.path
	for i := 0; cluster.Master(slotOf(cluster, path)) == away; i++ {
		path = fmt.Sprint(p.folder, "/", i)
	}
	e.gateway.Create(path)
	frozen, failed := make(chan struct{}), make(chan struct{})
	await := func(c chan struct{}) {
		select {
		case <-c:
		case <-t.Context().Done():
		}
	}
	p.receiver.Answer(func(n int, _ harness.Push) int {
		switch n {
		case 1:
			return http.StatusServiceUnavailable
		case 2:
			await(frozen)
			return http.StatusServiceUnavailable
		}
		await(failed)
		return http.StatusNoContent
	})
	is := func(what string, cond func(c fsm.Consumer) bool) {
		t.Helper()
		harness.Eventually(t, soon, what, func() error {
			c, err := p.consumerOf(path)
			if err == nil && !cond(c) {
				err = fmt.Errorf("it is %+v", c)
			}
			return err
		})
	}
	events := p.add(path, 0, 1)
	is("the first failure is stored", func(c fsm.Consumer) bool { return c.Attempt == 1 && c.LastError != "" })
	away.Pause()
	t.Cleanup(away.Resume)
	close(frozen)
	is("the second failure is stored", func(c fsm.Consumer) bool { return c.Attempt == 2 && !c.Sent })
	close(failed)
	is("the delivery is acked", func(c fsm.Consumer) bool {
		return c.State == fsm.Idle && c.Links[path].Acked == fsm.Offset(e.streams.Tail(path))
	})
	away.Resume()
	p.want(path, append(events, p.add(path, 1, 2)...))
}
