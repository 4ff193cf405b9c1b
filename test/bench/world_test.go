package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"reveille/test/harness"
)

// system is what is measured.
type system string

const (
	floor system = "floor"
	// tailed is Reveille with writers that go to the stream server directly, gateway with writers that go through it.
	tailed  system = "tailed"
	gateway system = "gateway"
	// tailedHTTP2 is tailed with a stream server that speaks HTTP/2.
	tailedHTTP2 system = "tailed, HTTP/2"
	// unordered is tailed with pushes of the ordering none.
	unordered system = "unordered"
	// handed is Reveille with clients that hand over each event for its target.
	handed system = "handed over"
)

var systems = []system{floor, tailed, gateway}

// world is a system at work, and a client for it.
type world struct {
	t      *testing.T
	ctx    context.Context
	system system
	// bin and settings are those of the replicas.
	bin      string
	settings map[string]string

	ref   *harness.RefServer
	redis *harness.Redis      // nil for the floor
	revs  []*harness.Reveille // none for the floor
	floor *harness.Process
	front *front // of tailedHTTP2 alone
	// api are the origins that take subscriptions and create streams, one a replica; write those that take appends.
	api, write []string
	http       *http.Client
}

// newWorld starts a system. bin is the build of Reveille, or empty for that of this commit.
func newWorld(ctx context.Context, t *testing.T, s system, bin string, replicas int) *world {
	t.Helper()
	w := &world{t: t, ctx: ctx, system: s, ref: harness.StartRefServer(t, harness.RefOptions{})}
	// Node closes a connection that was idle for 5 s, and a POST that is sent at that moment fails.
	transport := &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, IdleConnTimeout: 2 * time.Second}
	w.http = &http.Client{Transport: transport, Timeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	if s == floor {
		w.startFloor()
		return w
	}
	w.redis = harness.StartRedis(t, "--appendonly", "yes", "--appendfsync", "everysec")
	settings := map[string]string{
		"REVEILLE_UPSTREAM_URL": w.ref.StreamRoot, "REVEILLE_REDIS_URL": w.redis.URL,
		"REVEILLE_LOG_LEVEL": "error",
	}
	if s == handed {
		settings["REVEILLE_OUTBOX"] = "/outbox"
	}
	if s == tailedHTTP2 {
		w.front = newFront(t, w.ref.StreamRoot)
		settings["REVEILLE_UPSTREAM_URL"], settings["REVEILLE_UPSTREAM_H2C"] = w.front.url, "true"
	}
	if bin == "" {
		var err error
		if bin, err = harness.BuildPlainReveille(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.bin, w.settings = bin, settings
	for range replicas {
		w.startReveille(nil)
	}
	if s != gateway {
		w.write = []string{w.ref.StreamRoot}
	}
	return w
}

// startReveille starts one more replica. further settings go on top of those of all.
func (w *world) startReveille(further map[string]string) {
	w.t.Helper()
	settings := maps.Clone(w.settings)
	maps.Copy(settings, further)
	rev := harness.NewReveilleOf(w.t, w.bin, settings)
	rev.Start()
	w.revs, w.api, w.write = append(w.revs, rev), append(w.api, rev.URL), append(w.write, rev.URL)
}

// restartReveille ends the only replica, and starts it with further settings.
func (w *world) restartReveille(further map[string]string) {
	w.t.Helper()
	w.check(w.revs[0].Stop())
	w.revs, w.api = nil, nil
	w.startReveille(further)
}

func (w *world) startFloor() {
	w.t.Helper()
	bin, err := harness.BuildPlain(w.t.Context(), "./test/bench/floor")
	if err != nil {
		w.t.Fatal(err)
	}
	out := &harness.Output{}
	if w.floor, err = harness.Start("the floor", out, exec.Command(bin, "-upstream", w.ref.StreamRoot)); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.floor.Kill)
	var url string
	harness.Eventually(w.t, harness.Wait, "the floor listens", func() (err error) {
		url, err = harness.AnnouncedURL(out.String())
		return err
	})
	w.api, w.write = []string{url}, []string{w.ref.StreamRoot}
}

// answer of a request, read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ask makes a request; token is a bearer token or empty.
func (w *world) ask(method, url, body, token string) (answer, error) {
	req, err := http.NewRequestWithContext(w.ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := w.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %.200s", method, url, res.Status, text)
	}
	return answer{res.StatusCode, res.Header, text}, err
}

// subscribe makes a subscription at a replica.
func (w *world) subscribe(replica int, pattern, id, webhook string) error {
	_, err := w.ask(http.MethodPut, w.api[replica]+pattern+"?subscription="+id, fmt.Sprintf(`{"webhook":%q}`, webhook),
		"")
	return err
}

// create creates a stream of JSON messages.
func (w *world) create(n int, path string) error {
	_, err := w.ask(http.MethodPut, w.api[n%len(w.api)]+path, "", "")
	return err
}

// append appends an event and returns the stream's new end.
func (w *world) append(n int, path, event string) (string, error) {
	a, err := w.ask(http.MethodPost, w.write[n%len(w.write)]+path, event, "")
	return a.header.Get("Stream-Next-Offset"), err
}

// backfilled says whether the consumers of the streams that were there before a subscription are made.
func (w *world) backfilled(id string) bool {
	a, err := w.ask(http.MethodGet, w.api[0]+"/**?subscription="+id, "", "")
	var sub harness.Subscription
	return err == nil && json.Unmarshal(a.body, &sub) == nil && sub.Backfill == nil
}

// each calls f for 0 to n-1, several at a time, and returns the first error.
func (w *world) each(n int, f func(i int) error) error {
	const width = 32
	failures := make(chan error, width)
	for from := range width {
		go func() {
			var err error
			for i := from; i < n && err == nil; i += width {
				err = f(i)
			}
			failures <- err
		}()
	}
	var first error
	for range width {
		if err := <-failures; first == nil {
			first = err
		}
	}
	return first
}

// check ends the world's test if there is an error, in silence if everything was interrupted.
func (w *world) check(err error) {
	w.t.Helper()
	switch {
	case w.ctx.Err() != nil:
		w.t.SkipNow()
	case err != nil:
		w.t.Fatal(err)
	}
}
