package fault

import (
	"fmt"
	"net"
	"strings"
	"time"

	"reveille/test/harness"
)

// failoverWindow is how much of its latest changes a master may not have passed on when it dies.
const failoverWindow = time.Second

// startCluster starts three masters with a replica each. Clients reach the nodes through a link each, because that is
// what the nodes say where they are; so do the nodes that follow a master.
func (w *world) startCluster() {
	w.t.Helper()
	w.cluster = harness.StartRedisCluster(w.t, 3, 1, "--appendonly", "yes", "--appendfsync", "everysec")
	for _, n := range w.cluster.Nodes {
		w.connect(linkRedis, -1, n.Addr)
		w.announce(n)
	}
	harness.Eventually(w.t, harness.Wait, "all nodes know the links", func() error {
		for _, n := range w.cluster.Nodes {
			table, err := n.Client().ClusterNodes(w.t.Context()).Result()
			if err != nil {
				return err
			}
			for _, c := range w.some(linkRedis, -1) {
				if !strings.Contains(table, c.Addr+"@") {
					return fmt.Errorf("%s does not know %s:\n%s", n.Addr, c.Addr, table)
				}
			}
		}
		return nil
	})
}

// announce has a node, which forgets it with each end, say that it is where its link begins.
func (w *world) announce(n *harness.Redis) {
	w.t.Helper()
	_, port, _ := net.SplitHostPort(w.linkTo(n).Addr)
	if err := n.Client().ConfigSet(w.t.Context(), "cluster-announce-port", port).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// someMaster draws a master.
func (w *world) someMaster() *harness.Redis { return w.cluster.Master(w.random(16384)) }

// killMasters kills a master, and once its replica has taken over starts it again as the replica of that.
func killMasters(w *world, span time.Duration) {
	for range 2 {
		killMaster(w, span/6)
		w.pause(span / 6)
	}
}

// killMaster kills a master, and starts it again a while after its replica has taken over.
func killMaster(w *world, after time.Duration) {
	master, killed := w.someMaster(), time.Now()
	master.Kill()
	w.awaitFailover(master)
	w.pause(after)
	master.Restart()
	w.announce(master)
	w.cluster.AwaitWhole()
	w.journal.mark(redisLost, killed.Add(-failoverWindow), time.Now())
}

// freezeMasters stops a master as it stands until its replica has taken over. It comes back in the belief to be the
// master.
func freezeMasters(w *world, span time.Duration) {
	for range 2 {
		master, frozen := w.someMaster(), time.Now()
		master.Pause()
		w.awaitFailover(master)
		w.pause(span / 6)
		master.Resume()
		w.cluster.AwaitWhole()
		w.journal.mark(redisLost, frozen.Add(-failoverWindow), time.Now())
		w.pause(span / 6)
	}
}

// swallowNode keeps a node out of the clients' reach. The others reach it, so nobody takes over.
func swallowNode(w *world, span time.Duration) {
	nodes := w.some(linkRedis, -1)
	swallowFor(w, []*connection{nodes[w.random(len(nodes))]}, span)
}

// awaitFailover waits until all other nodes know that a master serves nothing any more.
func (w *world) awaitFailover(of *harness.Redis) {
	w.t.Helper()
	harness.Eventually(w.t, harness.Wait, "a replica takes over", func() error {
		for _, n := range w.cluster.Nodes {
			if n == of {
				continue
			}
			table, err := n.Client().ClusterNodes(w.t.Context()).Result()
			if err != nil {
				return err
			}
			for line := range strings.Lines(table) {
				// After the eighth field come the slots that a node serves.
				if f := strings.Fields(line); strings.HasPrefix(f[1], w.linkTo(of).Addr+"@") && len(f) > 8 {
					return fmt.Errorf("%s: %s", n.Addr, line)
				}
			}
		}
		return nil
	})
}

func (w *world) linkTo(n *harness.Redis) *connection {
	for _, c := range w.some(linkRedis, -1) {
		if c.to == n.Addr {
			return c
		}
	}
	w.t.Fatalf("no link leads to %s", n.Addr)
	return nil
}
