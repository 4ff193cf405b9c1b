// Package workers runs the example workers for real.
package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"reveille/dispatcher/format"
	"reveille/fsm"
	"reveille/redisstore"
	"reveille/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const folder = "test/workers"

// starter starts an example for the subscription of a secret and a stream server.
type starter func(t *testing.T, secret, streams string) *harness.NodeScript

type example struct {
	name  string
	start starter
}

var (
	// callers use the callback API.
	callers  = []example{{"Cloudflare Workers", script("host-cloudflare.mjs")}, {"Go", startGoWorker}}
	examples = append(slices.Clone(callers), example{"AWS Lambda", script("host-lambda.mjs")})
)

func TestExampleWorkersProcessEveryEventAndComeToRest(t *testing.T) {
	for _, example := range examples {
		t.Run(example.name, func(t *testing.T) {
			server := harness.StartRefServer(t, harness.RefOptions{})
			redis := harness.StartRedis(t)
			reveille := harness.StartReveille(t, map[string]string{
				"REVEILLE_UPSTREAM_URL": server.StreamRoot,
				"REVEILLE_REDIS_URL":    redis.URL,
			})
			streams, api := harness.NewClient(t, server.StreamRoot), harness.NewClient(t, reveille.URL)

			consumer := consumerOf(redis, "example", "/agents/task-1")

			// The recorder stands in front of the example and shows what Reveille sends to it.
			recorder := harness.NewWorker(t)
			sub := api.Subscribe("/agents/*", "example", recorder)
			host := example.start(t, sub.Secret, server.StreamRoot)
			recorder.Answer(forwardTo(t, host.URL))

			api.Create("/agents/task-1")
			var tail string
			for n := 1; n <= 3; n++ {
				tail = streams.Append("/agents/task-1", fmt.Sprintf(`{"n":%d}`, n))
			}
			awaitProcessed(t, host, 1, 2, 3)
			awaitRest(t, consumer, tail)
			settled := len(recorder.Wakes())

			last := streams.Append("/agents/task-1", `{"n":4}`)
			awaitProcessed(t, host, 1, 2, 3, 4)
			if wake := recorder.Wake(settled + 1); wake.Offset("/agents/task-1") != tail {
				t.Errorf("at rest the acked offset was %q, want the tail %q", wake.Offset("/agents/task-1"), tail)
			}
			awaitRest(t, consumer, last)
			if got := processed(host); got[len(got)-1] != 4 || slices.Index(got, 4) != len(got)-1 {
				t.Errorf("processed %v, want event 4 once, at the end", got)
			}
		})
	}
}

func TestExampleWorkersRefuseWakesThatAreNotSigned(t *testing.T) {
	body := []byte(`{"consumer_id":"s:%2Fa","epoch":1,"wake_id":"w_1","streams":[],` +
		`"callback":"http://127.0.0.1:1/","token":"t"}`)
	now := time.Now()
	cases := []struct {
		name, signature string
	}{
		{"no signature", ""},
		{"a signature by another secret", harness.Sign("whsec_other", now, body)},
		{"a signature of another body", harness.Sign("whsec_test", now, []byte(`{}`))},
		{"a signature that is six minutes old", harness.Sign("whsec_test", now.Add(-6*time.Minute), body)},
		{"a signature from six minutes ahead", harness.Sign("whsec_test", now.Add(6*time.Minute), body)},
		{"a signature that is cut short", harness.Sign("whsec_test", now, body)[:40]},
	}
	for _, example := range examples {
		t.Run(example.name, func(t *testing.T) {
			host := example.start(t, "whsec_test", "http://127.0.0.1:1")
			c := harness.NewClient(t, host.URL)
			for _, tc := range cases {
				res := c.Do(http.MethodPost, "/", string(body), "Webhook-Signature", tc.signature)
				if res.Status != http.StatusUnauthorized {
					t.Errorf("%s: status %d, want 401", tc.name, res.Status)
				}
			}
			for _, header := range []string{"Webhook-Signature", "Webhook-Signature-New"} {
				other := map[string]string{
					"Webhook-Signature": "Webhook-Signature-New", "Webhook-Signature-New": "Webhook-Signature",
				}[header]
				res := c.Do(http.MethodPost, "/", string(body), header, harness.Sign("whsec_test", now, body),
					other, harness.Sign("whsec_other", now, body))
				if res.Status/100 != 2 {
					t.Errorf("a signature in %s, with one by another secret beside it: status %d", header, res.Status)
				}
			}
			test := format.TestBatch(fsm.Subscription{ID: "s"}, "test_1", now).Events[0]
			res := c.Do(http.MethodPost, "/", string(test), "Webhook-Signature", harness.Sign("whsec_test", now, test))
			if res.Status != http.StatusNoContent {
				t.Errorf("a test delivery: status %d, %s", res.Status, res.Body)
			}
		})
	}
}

func TestExampleWorkersObeyTheCallbackErrors(t *testing.T) {
	const success = `{"ok":true,"token":"t-next","streams":[]}`
	refused := func(code, token string) string {
		return fmt.Sprintf(`{"ok":false,"error":{"code":%q,"message":"…"},"token":%q}`, code, token)
	}
	cases := []struct {
		name    string
		answers []callbackAnswer
		want    []string // the tokens of the callbacks that it sends
	}{
		{
			"each callback has the newest token",
			[]callbackAnswer{{200, success}, {200, success}},
			[]string{"t-first", "t-next"},
		},
		{
			"an expired token is replaced by the one of the answer and the callback sent again",
			[]callbackAnswer{{401, refused("TOKEN_EXPIRED", "t-fresh")}, {200, success}, {200, success}},
			[]string{"t-first", "t-fresh", "t-next"},
		},
		{
			"a callback that cannot be taken now is sent again",
			[]callbackAnswer{{503, refused("UNAVAILABLE", "")}, {200, success}, {200, success}},
			[]string{"t-first", "t-first", "t-next"},
		},
		{"a stale epoch ends the work", []callbackAnswer{{409, refused("STALE_EPOCH", "t-x")}}, []string{"t-first"}},
		{
			"a wake that is another's ends the work",
			[]callbackAnswer{{409, refused("ALREADY_CLAIMED", "t-x")}},
			[]string{"t-first"},
		},
		{
			"a consumer that is gone ends the work",
			[]callbackAnswer{{410, refused("CONSUMER_GONE", "")}},
			[]string{"t-first"},
		},
		{
			"a forged token is not tried again",
			[]callbackAnswer{{401, refused("TOKEN_INVALID", "")}},
			[]string{"t-first"},
		},
	}
	for _, example := range callers {
		t.Run(example.name, func(t *testing.T) {
			host := example.start(t, "whsec_test", "http://127.0.0.1:1")
			c := harness.NewClient(t, host.URL)
			wake := func(n int, answers []callbackAnswer) *callbackServer {
				callbacks := answerCallbacks(t, answers)
				body, err := json.Marshal(harness.Payload{
					ConsumerID: fmt.Sprintf("s%d:%%2Fa", n), Epoch: 1, WakeID: "w_1", Callback: callbacks.url,
					Token: "t-first",
				})
				if err != nil {
					t.Fatal(err)
				}
				res := c.Do(http.MethodPost, "/", string(body), "traceparent", traceparent,
					"Webhook-Signature", harness.Sign("whsec_test", time.Now(), body))
				if res.Status != http.StatusAccepted {
					t.Errorf("status %d, want 202", res.Status)
				}
				return callbacks
			}
			await := func(of *callbackServer, n int) {
				harness.Eventually(t, harness.Wait, "the callbacks", func() error {
					if got := of.sent(); len(got) < n {
						return fmt.Errorf("these have come: %q, want %d", got, n)
					}
					return nil
				})
			}
			var servers []*callbackServer
			for n, tc := range cases {
				servers = append(servers, wake(n, tc.answers))
			}
			for n, tc := range cases {
				await(servers[n], len(tc.want))
			}
			// A callback too many would be sent at once or after a second. Before what comes after both, it is there.
			later := []callbackAnswer{{503, refused("UNAVAILABLE", "")}, {200, success}, {200, success}}
			await(wake(len(cases), later), len(later))
			for n, tc := range cases {
				if got := servers[n].sent(); !slices.Equal(got, tc.want) {
					t.Errorf("%s: callbacks with the tokens %q, want %q", tc.name, got, tc.want)
				}
			}
		})
	}
}

func TestExampleWorkersPassTheTypeChecker(t *testing.T) {
	if err := harness.NodeModules(t.Context(), folder, func() { t.Logf("npm ci in %s", folder) }); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "npm", "run", "--silent", "typecheck")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// script starts an example by the script that stands for its platform.
func script(name string) starter {
	return func(t *testing.T, secret, streams string) *harness.NodeScript {
		t.Helper()
		return harness.StartNodeScript(t, folder, name, map[string]string{
			"WEBHOOK_SECRET": secret, "STREAMS_URL": streams, "TMPDIR": filepath.Clean(t.TempDir()),
		})
	}
}

// forwardTo has a recorder send its wakes on as they are and answer what the example answers.
func forwardTo(t *testing.T, url string) func(http.ResponseWriter, *http.Request, harness.Wake) {
	c := harness.NewClient(t, url)
	return func(w http.ResponseWriter, r *http.Request, wake harness.Wake) {
		res, err := c.Try(r.Context(), http.MethodPost, "/", string(wake.Body),
			"Content-Type", "application/json", "Webhook-Signature", wake.Header.Get("Webhook-Signature"))
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", res.Header.Get("Content-Type"))
		w.WriteHeader(res.Status)
		_, _ = io.WriteString(w, res.Body)
	}
}

// processed returns the events that an example says it processed, in order, repeats included.
func processed(host *harness.NodeScript) []int {
	var events []int
	for line := range strings.Lines(host.Log()) {
		_, message, found := strings.Cut(line, "processed /agents/task-1 ")
		var event struct{ N int }
		if found && json.Unmarshal([]byte(message), &event) == nil {
			events = append(events, event.N)
		}
	}
	return events
}

// awaitProcessed waits until an example has processed each of the events, and fails if it took them out of order.
// At least once is what is promised: an event that lands while a synchronous worker runs comes twice.
func awaitProcessed(t *testing.T, host *harness.NodeScript, want ...int) {
	t.Helper()
	harness.Eventually(t, harness.Wait, fmt.Sprintf("events %v are processed", want), func() error {
		var first []int
		for _, n := range processed(host) {
			if !slices.Contains(first, n) {
				first = append(first, n)
			}
		}
		if !slices.Equal(first, want) {
			return fmt.Errorf("processed %v", processed(host))
		}
		return nil
	})
}

// consumerOf returns how a consumer stands.
func consumerOf(r *harness.Redis, subscription, path string) func(context.Context) (fsm.Consumer, error) {
	store := redisstore.New(r.Client(), redisstore.Options{})
	return func(ctx context.Context) (fsm.Consumer, error) {
		return store.Consumer(ctx, fsm.RefOf(subscription, path))
	}
}

// awaitRest waits until a consumer is at rest, with nothing pending of a stream that ends at tail: no more wakes come.
func awaitRest(t *testing.T, consumer func(context.Context) (fsm.Consumer, error), tail string) {
	t.Helper()
	harness.Eventually(t, harness.Wait, "the consumer comes to rest", func() error {
		c, err := consumer(t.Context())
		if err == nil && (c.State != fsm.Idle || c.Pending() || string(c.Links[c.Primary].Tail) != tail) {
			err = fmt.Errorf("it is %s with %+v, want the tail %s", c.State, c.Links, tail)
		}
		return err
	})
}
