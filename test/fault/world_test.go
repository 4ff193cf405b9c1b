package fault

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"

	"reveille/redisstore"
	"reveille/test/harness"
)

const replicas = 3

// The times that the replicas are given, short enough for a scenario to see them pass.
const (
	wakingTimeout   = 2 * time.Second
	livenessTimeout = 3 * time.Second
	// goneGrace is far from what a scenario takes in which streams must not be gone.
	goneGrace = 2 * time.Minute
)

// publicURL is what callbacks go to. There is no such host: the workers' client finds a replica for it, as a balancer
// would that does not know which of them work.
const publicURL = "http://reveille.balancer"

// options of a world.
type options struct {
	// binary that the replicas are; the product as it stands if empty.
	binary string
	// cluster has the state in a Redis Cluster.
	cluster bool
	// registry has the stream server keep a registry stream, and the replicas read it.
	registry bool
	// binaries of single replicas, and settings on top of the usual ones for all.
	settings map[string]string
	// targets is for how many receivers clients hand events over, and events for how many in all; 0 for as many as they
	// can. Without targets, the replicas take no events.
	targets, events int
	// calm has the writers write a tenth, so that the machine has more time for what clients hand over.
	calm bool
}

// world is everything that one scenario plays in.
type world struct {
	t       testing.TB
	options options
	journal *journal
	proxies *toxiproxy.ApiServer
	links   []*connection

	// redis or cluster is nil.
	redis    *harness.Redis
	cluster  *harness.RedisCluster
	store    *redisstore.Store
	ref      *harness.RefServer
	replicas []*harness.Reveille
	api      []*connection
	writer   *connection
	reader   *connection
	missing  *httptest.Server
	workers  []*worker
	// receivers are where events are pushed to, some by way of the proxy, to which a link leads.
	receivers []*receiver
	proxy     *forwardProxy
	toProxy   *connection
	operator  *operator
	// targets are what events are handed over for, and outbox is how far that has got.
	targets []*target
	outbox  outbox
	// direct speaks to the stream server past all links.
	direct *harness.Client

	// ctx ends with the scenario; busy is what it ends.
	ctx  context.Context
	end  context.CancelFunc
	busy sync.WaitGroup

	mu      sync.Mutex
	rnd     *rand.Rand
	streams []*stream
	// drawn counts what receivers and the proxy do wrong, by its name.
	drawn map[string]int
	// clocks is the folder of the replicas' clockFiles.
	clocks string
	// creating is held while a stream is created.
	creating sync.Mutex
}

func newWorld(t testing.TB, seed uint64, o options) *world {
	t.Helper()
	w := &world{
		t: t, options: o, journal: &journal{}, proxies: newProxyServer(), clocks: t.TempDir(),
		rnd: rand.New(rand.NewPCG(seed, 1)), drawn: map[string]int{},
	}
	w.ctx, w.end = context.WithCancel(t.Context())
	w.startRedis(o)
	w.ref = harness.StartRefServer(t, harness.RefOptions{
		DataDir: filepath.Join(t.TempDir(), "streams"), LongPoll: 5 * time.Second, Registry: o.registry,
	})
	w.direct = harness.NewClient(t, w.ref.StreamRoot)
	w.missing = httptest.NewServer(http.HandlerFunc(notFound))
	t.Cleanup(w.missing.Close)
	w.writer, w.reader = w.toStreams(linkWriter, -1), w.toStreams(linkReader, -1)
	w.startProxy()
	for i := range replicas {
		w.startReplica(i, o)
	}
	w.busy.Go(w.watchMachine)
	w.startWorkers()
	w.startReceivers()
	w.startTargets()
	w.startOperator()
	// What the scenario's goroutines use must outlive them.
	t.Cleanup(w.stop)
	return w
}

// stop ends everything that the world does by itself.
func (w *world) stop() {
	w.end()
	w.busy.Wait()
}

// standstill is after how long without running the machine is at fault: answers may take pushReport.
const standstill = pushReport / 2

// watchMachine marks when the machine stood still: what was on its way then came too late, as no scenario has meant.
func (w *world) watchMachine() {
	for last := time.Now(); w.pause(standstill / 10); last = time.Now() {
		if time.Since(last) > standstill {
			w.journal.mark(answersLost, last, time.Now())
		}
	}
}

func (w *world) startRedis(o options) {
	w.t.Helper()
	var rdb redis.UniversalClient
	if o.cluster {
		w.startCluster()
		rdb = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:       addrs(w.some(linkRedis, -1)),
			ReadTimeout: 3 * time.Second,
		})
	} else {
		// Without rewriting, the file only grows, so that a scenario can take the end of it away.
		w.redis = harness.StartRedis(w.t, "--appendonly", "yes", "--appendfsync", "everysec",
			"--auto-aof-rewrite-percentage", "0")
		rdb = redis.NewClient(&redis.Options{Addr: w.redis.Addr})
	}
	w.t.Cleanup(func() { _ = rdb.Close() })
	w.store = redisstore.New(rdb, redisstore.Options{})
}

func addrs(cs []*connection) []string {
	var a []string
	for _, c := range cs {
		a = append(a, c.Addr)
	}
	return a
}

// toStreams makes a link to the stream server.
func (w *world) toStreams(kind string, replica int) *connection {
	w.t.Helper()
	c := w.connect(kind, replica, strings.TrimPrefix(w.ref.URL, "http://"))
	c.root = strings.TrimPrefix(w.ref.StreamRoot, w.ref.URL)
	return c
}

func (w *world) startReplica(i int, o options) {
	w.t.Helper()
	url := "redis+cluster://" + strings.Join(addrs(w.some(linkRedis, -1)), ",")
	if w.redis != nil {
		url = "redis://" + w.connect(linkRedis, i, w.redis.Addr).Addr
	}
	settings := map[string]string{
		"REVEILLE_REDIS_URL":         url,
		"REVEILLE_UPSTREAM_URL":      w.toStreams(linkUpstream, i).URL(),
		"REVEILLE_UPSTREAM_NAME":     "streams",
		"REVEILLE_PUBLIC_URL":        publicURL,
		"REVEILLE_WAKING_TIMEOUT":    wakingTimeout.String(),
		"REVEILLE_LIVENESS_TIMEOUT":  livenessTimeout.String(),
		"REVEILLE_STREAM_GONE_GRACE": goneGrace.String(),
		"REVEILLE_TAIL_CHECK":        "500ms",
		"REVEILLE_LOG_LEVEL":         "info",
		clockSetting:                 w.clockFile(i),
	}
	if o.registry {
		settings["REVEILLE_REGISTRY_STREAM"] = "/__registry__"
	}
	if o.targets > 0 {
		settings["REVEILLE_OUTBOX"] = outboxRoot
	}
	maps.Copy(settings, w.proxy.settings())
	maps.Copy(settings, o.settings)
	binary := o.binary
	if binary == "" {
		var err error
		if binary, err = harness.BuildRaceReveille(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
	r := harness.NewReveilleOf(w.t, binary, settings)
	r.Start()
	w.replicas = append(w.replicas, r)
	w.api = append(w.api, w.connect(linkAPI, i, strings.TrimPrefix(r.URL, "http://")))
}

// random draws below n.
func (w *world) random(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

// chance is true with a probability.
func (w *world) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.Float64() < p
}

// between draws a duration.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.random(int(most-least)+1))
}

// pause waits, and returns false if the world has ended before.
func (w *world) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// balanced is a client of a balancer in front of the replicas.
func (w *world) balanced(timeout time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: time.Second}
	transport := &http.Transport{
		// Each request may find another replica.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			first := w.random(replicas)
			var err error
			for i := range replicas {
				var c net.Conn
				if c, err = dialer.DialContext(ctx, network, w.api[(first+i)%replicas].Addr); err == nil {
					return c, nil
				}
			}
			return nil, err
		},
	}
	return &http.Client{Transport: transport, Timeout: timeout}
}

// revive makes everything work again.
func (w *world) revive() {
	w.t.Helper()
	w.healAll()
	for _, r := range w.replicas {
		r.Resume()
		if ended(r.Process) {
			r.Start()
		}
	}
	for _, k := range w.workers {
		k.behave(behaviour{})
	}
	for _, r := range w.receivers {
		r.behave(behaviour{})
	}
	for _, r := range w.targets {
		r.behave(behaviour{})
	}
	w.proxy.behave(behaviour{})
	for i := range w.replicas {
		w.jump(i, 0)
	}
}

func ended(p *harness.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

func (w *world) named(i int) string { return fmt.Sprintf("replica %d", i) }
