package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/test/harness"
)

// refused are requests that Reveille refuses, as the page says, with the code of the answer.
var refused = map[string]string{"/callback/a:%2Fb": "TOKEN_INVALID"}

// foreign is a server that is none of the test's.
var foreign = regexp.MustCompile(`localhost|example\.com`)

// pastes are servers that have what the pages speak of.
type pastes struct {
	*env
	dir, root string
	admin     *harness.Client
	worker    *harness.Worker
	receiver  *harness.Receiver
	// from and to are offsets of the stream /orders/17, letter is a dead letter of the subscription orders.
	from, to, letter string
	// delivery is a push of the subscription orders that was taken.
	delivery string
	// handed is an event that was handed over for direct delivery, and waits is one whose endpoint is not ready.
	handed, waits string
	// push is a request of a subscription with this secret.
	push   harness.Push
	secret string
}

func newPastes(t *testing.T) *pastes {
	t.Helper()
	// The pages speak of one Redis, also where other tests have a cluster.
	server := harness.StartRedis(t)
	e := &env{t: t, redis: &database{URL: server.URL, servers: []*harness.Redis{server}, t: t}}
	e.ref = refServer(t, harness.RefOptions{})
	e.run(options{settings: map[string]string{
		"REVEILLE_PPROF": "true", "REVEILLE_OJS": "true", "REVEILLE_CONSENT": "ask", "REVEILLE_OUTBOX": "/outbox",
		"REVEILLE_ORIGIN": "reveille.example.com", "REVEILLE_UNCONSENTED_RATE": "1000000",
	}})
	w := &pastes{
		env: e, dir: t.TempDir(), admin: e.operator(), worker: harness.NewWorker(t), receiver: harness.NewReceiver(t),
	}
	w.worker.AnswerDone()
	bin, err := harness.BuildPlainReveille(t.Context())
	if err == nil {
		err = os.Symlink(bin, filepath.Join(w.dir, "reveille"))
	}
	if err == nil {
		w.root, err = harness.Root()
	}
	if err == nil && !testing.Short() { // go tool compiles pprof, which can take minutes
		err = exec.CommandContext(t.Context(), "go", "tool", "-n", "pprof").Run()
	}
	if err != nil {
		t.Fatal(err)
	}
	w.gateway.Create("/agents/task-1")
	w.gateway.Create("/orders/17")
	w.from = w.gateway.Append("/orders/17", `{"n":1}`)
	w.to = w.gateway.Append("/orders/17", `{"n":2}`)
	w.gateway.Append("/agents/task-1", `{"n":1}`)
	w.gateway.Append("/agents/task-1", `{"n":2}`)
	w.subscribe()
	w.handed = w.handOver(w.gateway, http.StatusAccepted,
		`{"target_url":"`+w.receiver.URL+`","event_type":"push","payload":{}}`).ID
	busy := newOutboxTarget(t)
	busy.fails, busy.retryAfter = 1, "3600"
	w.waits = w.handOver(w.gateway, http.StatusAccepted,
		`{"target_url":"`+busy.URL+`","event_type":"push","payload":{}}`).ID
	w.event("/events/"+w.waits, "retrying")
	w.gateway.Append("/orders/17", `{"n":3}`)
	harness.Eventually(t, soon, "a push with two signatures", func() error {
		for _, p := range w.receiver.Pushes() {
			if p.Header.Get("X-OJS-Signature") != "" {
				w.push = p
				return os.WriteFile(filepath.Join(w.dir, "body"), p.Body, 0o600)
			}
		}
		return errors.New("there is none")
	})
	return w
}

// subscribe makes the subscriptions that the pages speak of, unless they are there.
func (w *pastes) subscribe() {
	w.t.Helper()
	for id, with := range map[string]struct{ path, webhook, more string }{
		"orders":  {"/orders/17", w.receiver.URL, `,"mode":"push"`},
		"billing": {"/orders/17", w.receiver.URL, `,"mode":"push","format":"ojs"`},
		"drafts":  {"/agents/task-1", w.worker.URL, ``},
	} {
		res := w.gateway.PutSubscription(with.path, id, `{"webhook":"`+with.webhook+`"`+with.more+`}`)
		if res.Status != http.StatusCreated && res.Status != http.StatusOK {
			w.t.Fatalf("PUT of %s: %d %s", id, res.Status, res.Body)
		}
		if id == "billing" && w.secret == "" {
			var sub harness.Subscription
			res.Decode(w.t, &sub)
			w.secret = sub.Secret
		}
		harness.Eventually(w.t, soon, "a consumer of "+id, func() error {
			res := w.admin.Do(http.MethodGet, "/api/v1/consumers/"+id+":"+url.PathEscape(with.path), "")
			return harness.True(func() bool { return res.Status == http.StatusOK }, "%d %s", res.Status, res.Body)()
		})
	}
}

// bury has the endpoint refuse two events.
func (w *pastes) bury() {
	w.t.Helper()
	w.receiver.Answer(func(int, harness.Push) int { return http.StatusUnprocessableEntity })
	var list struct {
		Letters []struct{ ID string } `json:"dead_letters"`
	}
	for _, id := range []string{"billing", "orders"} {
		res := w.admin.Do(http.MethodPost, "/api/v1/dead-letters/discard", `{"subscription":"`+id+`"}`,
			"Content-Type", "application/json")
		if res.Status != http.StatusOK {
			w.t.Fatalf("discard: %d %s", res.Status, res.Body)
		}
	}
	w.gateway.Append("/orders/17", `{"n":4}`)
	w.gateway.Append("/orders/17", `{"n":5}`)
	for _, id := range []string{"billing", "orders"} {
		harness.Eventually(w.t, soon, "dead letters of "+id, func() error {
			w.admin.Do(http.MethodGet, "/api/v1/dead-letters?subscription="+id, "").Decode(w.t, &list)
			return harness.True(func() bool { return len(list.Letters) > 1 }, "there are %d", len(list.Letters))()
		})
	}
	w.letter = list.Letters[0].ID
	w.receiver.Answer(func(int, harness.Push) int { return http.StatusNoContent })
}

// deliver has the endpoint take an event of the subscription orders, and waits until the log says so.
func (w *pastes) deliver() {
	w.t.Helper()
	before := len(w.receiver.Pushes())
	w.gateway.Append("/orders/17", `{"n":6}`)
	harness.Eventually(w.t, soon, "a push of orders is in the log", func() error {
		for _, p := range w.receiver.Pushes()[before:] {
			if p.Header.Get("X-OJS-Signature") != "" || !strings.HasPrefix(p.ID, "evt_") {
				continue // of another subscription
			}
			var list struct{ Deliveries []struct{ ID string } }
			w.admin.Do(http.MethodGet, "/api/v1/subscriptions/orders/deliveries?id="+p.ID, "").Decode(w.t, &list)
			if w.delivery = p.ID; len(list.Deliveries) > 0 {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// places are what stands on the pages, each followed by what it is here.
func (w *pastes) places() []string {
	h, hmac := w.push.Header, harness.Sign(w.secret, time.Now(), w.push.Body)
	redis := "redis-cli -p " + w.redis.URL[strings.LastIndex(w.redis.URL, ":")+1:]
	list := []string{
		"http://localhost:8080", w.gateway.Root, "https://reveille.example.com", w.gateway.Root,
		"http://localhost:9090", w.rev.Operator,
		"http://localhost:3000/worker", w.worker.URL, "https://worker.example.com/wake", w.worker.URL,
		"http://localhost:3000/orders", w.receiver.URL, "http://localhost:3000/hook", w.receiver.URL,
		"https://example.com/hook", w.receiver.URL, "https://alerts.example.com/ojs", w.receiver.URL,
		"SUBSCRIPTION STREAM", "orders /orders/17", "OFFSET", w.from, "{from}", w.from,
		"0000000000000000_0000000000000026", w.from, "0000000000000000_0000000000000052", w.to,
		"dl_23_1795703412345678", w.letter,
		"evt_5f0a1b2c3d4e5f607182_0", w.delivery, "whe_17_5f0c2a9d3b7e4c613", w.handed,
		"whe_38_0a7d15e9b2c64f801", w.waits, "whsec_…", w.secret,
		"t=1704067200,sha256=a1b2…", hmac, "t=…,sha256=…", hmac,
		"'v1,…' --id evt_… --timestamp …", fmt.Sprintf("'%s' --id %s --timestamp %s",
			h.Get("Webhook-Signature"), w.push.ID, h.Get("Webhook-Timestamp")),
		"'sha256=…' --timestamp …", fmt.Sprintf("'%s' --timestamp %s",
			h.Get("X-OJS-Signature"), h.Get("X-OJS-Timestamp")),
		"kubectl exec deploy/reveille -- /reveille", "reveille",
		"redis-cli -h redis-1", redis, "redis-cli", redis,
		"curl ", "curl -sS --fail-with-body ", "make ", "make -n -C '" + w.root + "' ",
		"seconds=30", "seconds=1", "seconds=5", "seconds=0.1",
	}
	if testing.Short() {
		list = append(list, "go tool pprof -top -sample_index=alloc_objects", "curl -sS --fail -o profile",
			"go tool pprof -top", "curl -sS --fail -o profile")
	}
	return list
}

var made = regexp.MustCompile(`-X PUT '[^']*\?subscription=([\w-]+)'`)

// run runs a block, and fails the test unless all its commands succeed.
func (w *pastes) run(b pasted) {
	w.t.Helper()
	script := b.script()
	for _, m := range made.FindAllStringSubmatch(script, -1) {
		w.gateway.DeleteSubscription("/**", m[1])
		defer w.subscribe()
		defer w.gateway.DeleteSubscription("/**", m[1])
	}
	if strings.Contains(script, "dead-letters") || strings.Contains(script, "dl_") {
		w.bury()
	}
	if strings.Contains(script, "evt_5f0a1b2c3d4e5f607182_0") {
		w.deliver()
	}
	if strings.Contains(script, "redis-cli") {
		w.pasteOnRedis(b.at, script)
		return
	}
	w.paste(b.at, script)
}

// pasteOnRedis runs commands that change the data, for which the page has all replicas stopped.
func (w *pastes) pasteOnRedis(at, script string) {
	w.t.Helper()
	if err := w.rev.Stop(); err != nil {
		w.t.Fatal(err)
	}
	rdb := w.redis.Client()
	if err := rdb.MSet(w.t.Context(), "rv:{1}:c", "1", "rv:{2}:c", "2", "other", "3").Err(); err != nil {
		w.t.Fatal(err)
	}
	w.paste(at, script)
	if !strings.Contains(script, "unlink") {
		return
	}
	if keys, err := rdb.Keys(w.t.Context(), "*").Result(); err != nil || !slices.Equal(keys, []string{"other"}) {
		w.t.Errorf("%s leaves %q (%v), and should leave what is not of Reveille:\n%s", at, keys, err, script)
	}
}

// paste runs a script in a shell of its own.
func (w *pastes) paste(at, script string) {
	w.t.Helper()
	placed := strings.NewReplacer(w.places()...).Replace(script)
	for line := range strings.SplitSeq(placed, "\n") {
		if foreign.MatchString(line) && !strings.HasPrefix(line, "export ") {
			w.t.Errorf("%s: the table of places lacks the server in %s", at, line)
			return
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euxo", "pipefail", "-c", placed)
	cmd.Dir, cmd.WaitDelay = w.dir, time.Second
	cmd.Env = append(harness.Environ(map[string]string{
		"REVEILLE_OPERATOR_ADDR": w.rev.Operator, "REVEILLE_API_ADDR": w.rev.URL, "PPROF_TMPDIR": w.dir,
	}), "PATH="+w.dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	for request, code := range refused {
		if strings.Contains(script, request) {
			if !strings.Contains(string(out), code) {
				w.t.Errorf("%s: want %s:\n%s\n%s", at, code, script, out)
			}
			return
		}
	}
	if err != nil {
		w.t.Errorf("%s: %v:\n%s\n%s", at, err, script, out)
	}
}
