package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// callAt is call at a time at which the answers of these tests were given.
func callAt(ctx context.Context, stdin string, args ...string) (status int, stdout, stderr string) {
	var out, errs strings.Builder
	c := &cli{
		in: strings.NewReader(stdin), out: &out,
		now: func() time.Time { return time.Date(2026, 11, 21, 15, 20, 0, 0, time.UTC) },
	}
	return c.exit(c.run(ctx, args), &errs), out.String(), errs.String()
}

const (
	handedAnswer = `{"id":"whe_17_a","idempotency_key":"build 17","provider":null,"event_type":"push",` +
		`"target_url":"https://w.example/hook?k=s","status":"pending","attempts":0,"max_attempts":5,` +
		`"created_at":1795273200000}`
	deadAnswer = `{"id":"whe_17_b","idempotency_key":"idk_1","provider":"github","event_type":"push",` +
		`"payload":{"ref":"main"},"target_url":"https://w.example/hook?k=hunter2@x","status":"dead_letter",` +
		`"attempts":2,"max_attempts":2,"next_retry_at":null,"last_attempt_at":1795274340000,` +
		`"last_error":"status 503\u001b[31m","last_status_code":503,"delivered_at":null,"created_at":1795273200000,` +
		`"expires_at":null,"metadata":{"a":"b"},"replay_of":"whe_17_a"}`
)

// TestCommandsOfEvents holds what each command of direct deliveries asks for, and what it shows.
func TestCommandsOfEvents(t *testing.T) {
	file := filepath.Join(t.TempDir(), "payload.json")
	if err := os.WriteFile(file, []byte("{\"ref\": \"<main>\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const handed = "\nevent            whe_17_a\nstatus           pending\nidempotency key  build 17\n"
	for _, c := range []struct {
		name, request, answer, want string
		args                        []string
	}{
		{
			"an event is handed over",
			`POST /webhooks/deliver {"target_url":"https://w.example/hook?k=s","event_type":"push",` +
				`"idempotency_key":"build 17","payload":{"ref": "<main>"}}`, handedAnswer, handed,
			[]string{
				"send", "https://w.example/hook?k=s", "--type", "push", "--key", "build 17",
				"--data", `{"ref": "<main>"}`,
			},
		},
		{
			"with all that there is, from a file",
			`POST /webhooks/deliver {"target_url":"https://w.example/","event_type":"push","provider":"github",` +
				`"idempotency_key":"k","max_attempts":3,"metadata":{"a":1},"payload":{"ref": "<main>"}` + "\n}",
			handedAnswer, handed,
			[]string{
				"send", "--type=push", "--data=@" + file, "--provider=github", "--key=k", "--max-attempts=3",
				"--metadata={\"a\": 1}", "https://w.example/",
			},
		},
		{
			"from standard input",
			`POST /webhooks/deliver {"target_url":"https://w.example/","event_type":"e","idempotency_key":"k",` +
				`"payload":7}`, handedAnswer, handed,
			[]string{"send", "https://w.example/", "--type", "e", "--data", "-", "--key", "k"},
		},
		{
			"events", "GET /webhooks/events?event_type=a+b&host=w.example&limit=2&provider=github&" +
				"since=2026-11-21T13%3A50%3A00Z&status=dead_letter",
			`{"events":[` + deadAnswer + `,` + handedAnswer + `],"next":"abc"}`, `
EVENT     STATUS       ATTEMPTS  TYPE  PROVIDER  TARGET                    HANDED OVER  LAST ERROR
whe_17_b  dead_letter  2/2       push  github    https://w.example/hook?…  20m0s ago    status 503?[31m
whe_17_a  pending      0/5       push            https://w.example/hook?…  20m0s ago

There is more: reveille events --since 2026-11-21T13:50:00Z --status dead_letter --provider github --type 'a b' ` +
				"--host w.example --limit 2 --cursor abc\n",
			[]string{
				"events", "--status", "dead_letter", "--provider", "github", "--type", "a b", "--host", "w.example",
				"--since", "90m", "--limit", "2",
			},
		},
		{"no events", "GET /webhooks/events?cursor=x&limit=100", `{"events":[]}`, `
EVENT  STATUS  ATTEMPTS  TYPE  PROVIDER  TARGET  HANDED OVER  LAST ERROR
`, []string{"events", "--cursor", "x"}},
		{
			"one event", "GET /webhooks/events/whe_17_b", deadAnswer, `
event            whe_17_b
status           dead_letter
target           https://w.example/hook?…
type             push
provider         github
attempts         2 of 2
handed over      2026-11-21T15:00:00Z, 20m0s ago
last attempt     2026-11-21T15:19:00Z, 1m0s ago
last error       status 503?[31m
last status      503
idempotency key  idk_1
replay of        whe_17_a
metadata         {"a":"b"}
payload          {"ref":"main"}
`, []string{"events", "whe_17_b"},
		},
		{
			"an event without its payload", "GET /webhooks/events/whe_17_c",
			`{"id":"whe_17_c","idempotency_key":"k","status":"delivered","attempts":1,"max_attempts":5,` +
				`"created_at":1795273200000,"delivered_at":1795273201000,"expires_at":1795878001000,"metadata":null}`, `
event            whe_17_c
status           delivered
attempts         1 of 5
handed over      2026-11-21T15:00:00Z, 20m0s ago
delivered        2026-11-21T15:00:01Z, 19m59s ago
kept until       2026-11-28T15:00:01Z
idempotency key  k
payload          the stream server does not give it
`,
			[]string{"events", "whe_17_c"},
		},
		{
			"an event is replayed", `POST /webhooks/events/whe_17_b/replay {"idempotency_key":"k2"}`,
			`{"id":"whe_17_c","status":"pending"}`, `
whe_17_b is delivered again as whe_17_c
`,
			[]string{"events", "replay", "whe_17_b", "--key", "k2"},
		},
		{
			"an event is cancelled", `DELETE /webhooks/events/whe_17_a`, `{"id":"whe_17_a","status":"cancelled"}`, `
whe_17_a is cancelled
`, []string{"events", "cancel", "whe_17_a"},
		},
		{
			"statistics", "GET /webhooks/stats?hours=3&provider=github",
			`{"statuses":{"pending":2,"delivering":0,"delivered":930,"retrying":0,"dead_letter":1,"cancelled":0},
			"waiting_since":1795273200000,"since":1795269600000,
			"total":{"handed_over":933,"delivered":930,"dead_letter":1,"cancelled":0,"success_rate":0.99892,
			"p50_ms":12,"p95_ms":150,"p99_ms":2047},
			"providers":[{"provider":null,"handed_over":2,"delivered":0,"dead_letter":0,"cancelled":0,
			"success_rate":null,"p50_ms":null,"p95_ms":null,"p99_ms":null},
			{"provider":"github","handed_over":931,"delivered":930,"dead_letter":1,"cancelled":0,
			"success_rate":0.99892,"p50_ms":12,"p95_ms":150,"p99_ms":2047}],"hours":[]}`, `
now             2 pending, 930 delivered, 1 dead_letter
oldest waiting  2026-11-21T15:00:00Z, 20m0s ago
counted since   2026-11-21T14:00:00Z

PROVIDER  HANDED OVER  DELIVERED  DEAD  SUCCESS  P50   P95    P99
(none)    2            0
github    931          930        1     99.8 %   12ms  150ms  2.05s
(all)     933          930        1     99.8 %   12ms  150ms  2.05s
`,
			[]string{"events", "stats", "--hours", "3", "--provider", "github"},
		},
		{
			"statistics of nothing", "GET /webhooks/stats",
			`{"statuses":{"pending":0},"waiting_since":null,"since":1795269600000,"total":{},"providers":[]}`, `
now            no events
counted since  2026-11-21T14:00:00Z

PROVIDER  HANDED OVER  DELIVERED
(all)     0            0
`,
			[]string{"events", "stats"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := strings.Join(strings.Fields(c.request)[:2], " ")
			port := &apiPort{answers: map[string]string{target: c.answer}}
			server := httptest.NewServer(port)
			defer server.Close()
			args := append(slices.Clone(c.args), "--api", server.URL)
			status, out, errs := callAt(t.Context(), "7", args...)
			if status != 0 || errs != "" || "\n"+out != c.want {
				t.Errorf("status %d, %q, printed\n%s\nwant%s", status, errs, out, c.want)
			}
			if !slices.Equal(port.got, []string{c.request}) {
				t.Errorf("it asked for %q, want %q", port.got, c.request)
			}
			status, out, errs = callAt(t.Context(), "7", append(args, "--output", "json")...)
			if status != 0 || errs != "" || out != c.answer {
				t.Errorf("--output json: status %d, %q, printed %s", status, errs, out)
			}
		})
	}
}

// TestEventsAreChangedOneByOne holds what is printed of several, and that each replay has a key of its own.
func TestEventsAreChangedOneByOne(t *testing.T) {
	port := &apiPort{answers: map[string]string{
		"POST /webhooks/events/a/replay": `{"id":"b"}`, "POST /webhooks/events/c/replay": `{"id":"d"}`,
	}}
	server := httptest.NewServer(port)
	defer server.Close()
	status, out, errs := call("", "events", "replay", "a", "c", "none", "--api", server.URL)
	if status != 1 || out != "a is delivered again as b\nc is delivered again as d\n" ||
		errs != "reveille: none: SUBSCRIPTION_NOT_FOUND: there is no subscription with this id\n" {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	keys := regexp.MustCompile(`idk_[0-9a-f-]{36}`).FindAllString(strings.Join(port.got, "\n"), -1)
	if slices.Sort(keys); len(slices.Compact(keys)) != 3 {
		t.Errorf("the keys are %q", keys)
	}
}

// TestSendWaitsUntilTheEventIsOver holds what is shown of an event meanwhile, and the exit status.
func TestSendWaitsUntilTheEventIsOver(t *testing.T) {
	const begins = "event            whe_17_a\nidempotency key  k\n"
	const fails = `"status":"retrying","attempts":1,"max_attempts":2,"next_retry_at":1795274401000,` +
		`"last_error":"status 503"`
	for over, want := range map[string]string{
		`"status":"delivered","attempts":2,"max_attempts":2`:                     "delivered, 2 of 2 attempts\n",
		`"status":"dead_letter","attempts":2,"max_attempts":2,"last_error":"no"`: "dead_letter, 2 of 2 attempts; no\n",
		`"status":"cancelled","attempts":1,"max_attempts":2`:                     "cancelled, 1 of 2 attempts\n",
	} {
		answers := []string{`"status":"pending"`, fails, over}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"id":"whe_17_a","idempotency_key":"k",`+answers[0]+`}`)
			if r.Method == http.MethodGet {
				answers = answers[1:]
			}
		}))
		status, out, errs := call("", "send", "http://w/", "--type=e", "--data=1", "--wait", "--api", server.URL)
		server.Close()
		want = begins + "pending\nretrying, 1 of 2 attempts, the next at 2026-11-21T15:20:01Z; status 503\n" + want
		if failed := !strings.Contains(want, "delivered"); (status == 1) != failed || errs != "" || out != want {
			t.Errorf("%s: status %d, %q, printed\n%s\nwant\n%s", over, status, errs, out, want)
		}
	}
}

// TestAWaitThatIsInterruptedSaysHowToGoOn holds that an event can be found although the command was ended.
func TestAWaitThatIsInterruptedSaysHowToGoOn(t *testing.T) {
	ctx, interrupt := context.WithCancelCause(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			interrupt(errors.New("interrupted"))
		}
		_, _ = io.WriteString(w, handedAnswer)
	}))
	defer server.Close()
	status, _, errs := callAt(ctx, "", "send", "http://w/", "--type=e", "--data=1", "--wait", "--api", server.URL)
	if status != 1 || errs != "reveille: interrupted; reveille events whe_17_a shows what becomes of the event\n" {
		t.Errorf("status %d, %q", status, errs)
	}
}

// TestCommandsOfEventsSayWhatIsWrong holds that they name what would help.
func TestCommandsOfEventsSayWhatIsWrong(t *testing.T) {
	const needs = " (direct deliveries need REVEILLE_OUTBOX on all replicas)"
	const refused = `{"error":{"code":"%","message":"there is nothing at this path"}}`
	send := []string{"send", "https://w.example/", "--type", "e", "--data", "1"}
	const again = `(repeat it with --key 'it'\''s 1': it is the same event then)`
	keyed := append(slices.Clone(send), "--key", "it's 1")
	for _, c := range []struct {
		args   []string
		status int
		answer string
		says   string
		exit   int
	}{
		{send, 404, "no stream", "is this the API port?" + needs, 1},
		{send, 200, "{}", "is this the API port?" + needs, 1},
		{[]string{"events"}, 404, "no stream", "is this the API port?" + needs, 1},
		{[]string{"events", "stats"}, 404, strings.Replace(refused, "%", "NOT_FOUND", 1), "at this path" + needs, 1},
		{[]string{"events", "cancel", "a"}, 405, strings.Replace(refused, "%", "METHOD_NOT_ALLOWED", 1), needs, 1},
		{
			[]string{"events", "a"},
			404, `{"error":{"code":"NOT_FOUND","message":"there is no such event"}}`,
			"NOT_FOUND: there is no such event\n", 1,
		},
		{keyed, 503, strings.Replace(refused, "%", "UNAVAILABLE", 1), again, 1},
		{keyed, 504, "gateway timeout", again, 1},
		{[]string{"events", "replay", "a"}, 503, strings.Replace(refused, "%", "UNAVAILABLE", 1), "with --key idk_", 1},
		{send, 409, strings.Replace(refused, "%", "IDEMPOTENCY_CONFLICT", 1), "at this path\n", 1},
		{append(slices.Clone(send), "--api", "127.0.0.1:1"), 0, "", "REVEILLE_API_ADDR): dial", 1},
		{append(slices.Clone(send), "--api", "127.0.0.1:1"), 0, "", "(repeat it with --key idk_", 1},
		{append(slices.Clone(send), "--api", "x"), 0, "", "expected host:port or http://host:port\n", 2},
		{[]string{"send"}, 0, "", "usage: reveille send [flags] URL", 2},
		{send[:4], 0, "", "send: --data is missing", 2},
		{[]string{"send", "u", "--data", "1"}, 0, "", "send: --type is missing", 2},
		{append(slices.Clone(send[:5]), "main"), 0, "", "send: --data is not JSON; a text needs double quotes", 2},
		{append(slices.Clone(send[:5]), "-"), 0, "", "the payload from standard input is not JSON", 1},
		{append(slices.Clone(send[:5]), "@/nowhere"), 0, "", "--data: open /nowhere:", 1},
		{append(slices.Clone(send), "--metadata", "{"), 0, "", "send: --metadata is not JSON", 2},
		{append(slices.Clone(send), "--wait", "--output=json"), 0, "", "--wait shows progress", 2},
		{[]string{"events", ""}, 0, "", "usage: reveille events [flags] [ID|", 2},
		{[]string{"events", "replay"}, 0, "", "usage: reveille events", 2},
		{[]string{"events", "a", "b"}, 0, "", "usage: reveille events", 2},
		{[]string{"events", "cancel", "a", "--status=pending"}, 0, "", "the filters are for the list", 2},
		{[]string{"events", "a", "--since=1h"}, 0, "", "events a: the filters are for the list", 2},
		{[]string{"events", "stats", "--type=x"}, 0, "", "only --hours and --provider are for it", 2},
		{[]string{"events", "--hours=3"}, 0, "", "--hours is for stats", 2},
		{[]string{"events", "replay", "a", "b", "--key=k"}, 0, "", "--key is for the replay of one event", 2},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.answer)
		}))
		t.Setenv(apiAddrName, server.URL)
		status, out, errs := call("", c.args...)
		if status != c.exit || out != "" || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: status %d, %q, %q; want %d and %q", c.args, status, out, errs, c.exit, c.says)
		}
		server.Close()
	}
}
