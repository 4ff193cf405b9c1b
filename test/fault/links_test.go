package fault

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"

	"reveille/test/harness"
)

func init() { toxics.Register("breaks", new(breaks)) }

// breaks is a toxic that ends a connection at any piece of data that passes, with a chance. The one that comes with
// toxiproxy draws once for each connection, which does nothing to those that are kept open.
type breaks struct {
	Percent int `json:"percent"`
}

// Pipe implements toxics.Toxic.
func (b *breaks) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil || rand.IntN(100) < b.Percent {
				stub.Close()
				return
			}
			stub.Output <- c
		}
	}
}

// The kinds of links.
const (
	linkRedis    = "redis"    // a replica, or all of them, to a Redis
	linkUpstream = "upstream" // a replica to the stream server
	linkAPI      = "api"      // workers and writers to a replica
	linkWebhook  = "webhook"  // all replicas to a worker
	linkWriter   = "writer"   // writers to the stream server
	linkReader   = "reader"   // workers to the stream server
)

// connection is a link between two parts of the world, through a proxy.
type connection struct {
	// Kind is what it leads to; Replica the number of the replica that it is of, or -1.
	Kind    string
	Replica int
	// Addr is where it begins, root the folder of streams that is found there.
	Addr, root string

	t       testing.TB
	server  *toxiproxy.ApiServer
	journal *journal
	mu      sync.Mutex
	to      string
	proxy   *toxiproxy.Proxy
	// broken is since when it does not do what it should; zero if it does.
	broken time.Time
}

// connect makes a link to an address. It works until a fault is put on it.
func (w *world) connect(kind string, replica int, to string) *connection {
	w.t.Helper()
	c := &connection{
		Kind: kind, Replica: replica, Addr: fmt.Sprintf("127.0.0.1:%d", harness.FreePort(w.t)), t: w.t,
		server: w.proxies, journal: w.journal, to: to,
	}
	w.links = append(w.links, c)
	w.t.Cleanup(c.cut)
	c.heal()
	return c
}

func newProxyServer() *toxiproxy.ApiServer {
	return toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
}

// URL of the link's beginning.
func (c *connection) URL() string { return "http://" + c.Addr + c.root }

// String names the link.
func (c *connection) String() string { return fmt.Sprintf("%s/%d", c.Kind, c.Replica) }

// renew replaces the proxy by one with other conditions. What was open is cut: to change the conditions of open
// connections back would have to wait for whoever does not read.
func (c *connection) renew(to string, conditions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proxy != nil {
		c.breaks()
		c.proxy.Stop()
	}
	c.proxy = toxiproxy.NewProxy(c.server, c.String(), c.Addr, to)
	c.put(conditions)
	// The end of the old one may take a moment to be known.
	if err := harness.Poll(harness.Wait, c.proxy.Start); err != nil {
		c.t.Errorf("link %s: %v", c, err)
	}
	if !c.broken.IsZero() && (c.Kind == linkRedis || c.Kind == linkWebhook) {
		c.journal.mark(answersLost, c.broken, time.Now())
	}
	if c.broken = (time.Time{}); len(conditions) > 0 {
		c.breaks()
	}
}

// breaks notes that it does not do from now on what it should. c.mu is held.
func (c *connection) breaks() {
	if c.broken.IsZero() {
		c.broken = time.Now()
	}
}

func (c *connection) put(conditions []string) {
	for _, toxic := range conditions {
		if _, err := c.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			c.t.Errorf("link %s: %s: %v", c, toxic, err)
		}
	}
}

// heal makes the link work.
func (c *connection) heal() { c.renew(c.to) }

// cut ends all connections and refuses new ones.
func (c *connection) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proxy != nil {
		c.proxy.Stop()
	}
}

// leadTo has the link end elsewhere.
func (c *connection) leadTo(addr string) { c.renew(addr) }

// bad delays every answer and breaks connections at that share of the data that passes.
func (c *connection) bad(latency, jitter, percent int) {
	conditions := []string{}
	if latency > 0 {
		conditions = append(conditions,
			fmt.Sprintf(`{"type":"latency","stream":"downstream","attributes":{"latency":%d,"jitter":%d}}`, latency,
				jitter))
	}
	if percent > 0 {
		conditions = append(conditions,
			// Never acts, but has toxiproxy end connections with a reset instead of in order.
			`{"type":"reset_peer","stream":"upstream","toxicity":0,"attributes":{"timeout":0}}`,
			fmt.Sprintf(`{"name":"up","type":"breaks","stream":"upstream","attributes":{"percent":%d}}`, percent),
			fmt.Sprintf(`{"name":"down","type":"breaks","stream":"downstream","attributes":{"percent":%d}}`, percent))
	}
	c.renew(c.to, conditions...)
}

// swallow lets connections be, open ones too, and nothing pass.
func (c *connection) swallow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breaks()
	c.put([]string{
		`{"name":"none-up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`,
		`{"name":"none-down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`,
	})
}

// some returns the links of a kind; of all replicas if replica is negative.
func (w *world) some(kind string, replica int) []*connection {
	var cs []*connection
	for _, c := range w.links {
		if c.Kind == kind && (replica < 0 || c.Replica == replica) {
			cs = append(cs, c)
		}
	}
	return cs
}

func (w *world) healAll() {
	for _, c := range w.links {
		c.heal()
	}
}

// notFound is a server that answers 404 for everything, as a proxy does whose server is down.
func notFound(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
