package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"reveille/fsm"
)

// apiPort answers requests of the subscription API by what stands here for their method and target, and notes them.
type apiPort struct {
	status  int
	answers map[string]string
	got     []string
}

func (p *apiPort) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.got = append(p.got, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
	answer, ok := p.answers[r.Method+" "+r.RequestURI]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		answer = `{"error":{"code":"SUBSCRIPTION_NOT_FOUND","message":"there is no subscription with this id"}}`
	} else if p.status != 0 {
		w.WriteHeader(p.status)
	}
	_, _ = io.WriteString(w, answer)
}

// TestSubscribe holds what each command line asks for, and what it shows.
func TestSubscribe(t *testing.T) {
	const made = `{"subscription_id":"agents","pattern":"/agents/*","webhook":"http://127.0.0.1:3000/hook",` +
		`"webhook_secret":"whsec_x"}`
	for _, c := range []struct{ args, request, answer, want string }{
		{
			"/agents/* http://127.0.0.1:3000/hook",
			`PUT /agents/*?subscription=agents {"webhook":"http://127.0.0.1:3000/hook"}`, made, `
subscription    agents
pattern         /agents/*
webhook         http://127.0.0.1:3000/hook
mode            wake
signature       hmac
webhook secret  whsec_x

Next:
  REVEILLE_LISTEN_SECRET=… reveille listen --port 3000   # shows what comes; put the secret in
  reveille test agents
  curl -X PUT API/agents/first -H 'Content-Type: application/json' -d '{"n":1}'
`,
		},
		{
			"--push /agents/* https://w.example/hook?key=hunter2",
			`PUT /agents/*?subscription=agents-push {"webhook":"https://w.example/hook?key=hunter2","mode":"push"}`,
			`{"subscription_id":"agents-push","pattern":"/agents/*","webhook":"https://w.example/hook?key=hunter2",` +
				`"mode":"push","format":"json","signature":"standard-webhooks","webhook_secret":"whsec_y"}`, `
subscription    agents-push
pattern         /agents/*
webhook         https://w.example/hook?…
mode            push
signature       standard-webhooks
webhook secret  whsec_y

Next:
  reveille test agents-push
  curl -X PUT API/agents/first -H 'Content-Type: application/json' -d '{"n":1}'
`,
		},
		{
			"/agents/** https://w.example/ --id a --format cloudevents --batch 2 --start -1 --signature hmac " +
				"--description d",
			`PUT /agents/**?subscription=a {"webhook":"https://w.example/","mode":"push","format":"cloudevents",` +
				`"batch":2,"start":"-1","signature":"hmac","description":"d"}`,
			`{"subscription_id":"a","pattern":"/agents/**","webhook":"https://w.example/","mode":"push",` +
				`"signature":"hmac"}`, `
subscription    a
pattern         /agents/**
webhook         https://w.example/
mode            push
signature       hmac
webhook secret  not shown again; reveille rotate-secret a makes another

Next:
  reveille test a
  curl -X PUT API/agents/first -H 'Content-Type: application/json' -d '{"n":1}'
`,
		},
	} {
		target, _, _ := strings.Cut(c.request, " {")
		port := &apiPort{status: http.StatusCreated, answers: map[string]string{target: c.answer}}
		server := httptest.NewServer(port)
		args := append([]string{"subscribe", "--api", server.URL}, strings.Fields(c.args)...)
		status, out, errs := call("", args...)
		if status != 0 || errs != "" || "\n"+strings.ReplaceAll(out, server.URL, "API") != c.want {
			t.Errorf("%s: status %d, %q, printed\n%s\nwant%s", c.args, status, errs, out, c.want)
		}
		if !slices.Equal(port.got, []string{c.request}) {
			t.Errorf("%s: it asked for %q, want %q", c.args, port.got, c.request)
		}
		t.Setenv(apiAddrName, server.Listener.Addr().String())
		status, out, errs = call("", append([]string{"subscribe", "--output", "json"}, args[3:]...)...)
		if status != 0 || errs != "" || out != c.answer {
			t.Errorf("%s --output json: status %d, %q, printed %s", c.args, status, errs, out)
		}
		server.Close()
	}
}

// TestSubscribeSaysWhatIsWrong holds that the error of the API comes as it is.
func TestSubscribeSaysWhatIsWrong(t *testing.T) {
	port := &apiPort{status: http.StatusConflict, answers: map[string]string{}}
	server := httptest.NewServer(port)
	defer server.Close()
	conflict := `{"error":{"code":"SUBSCRIPTION_CONFLICT","message":"it has another webhook"}}`
	for _, id := range []string{"a", "b"} {
		port.answers["PUT /a?subscription="+id] = conflict
	}
	for _, c := range []struct {
		line, says string
		status     int
	}{
		{"/a http://x/", "SUBSCRIPTION_CONFLICT: it has another webhook (the id is a: --id gives it another)", 1},
		{"/a http://x/ --id b", "SUBSCRIPTION_CONFLICT: it has another webhook", 1},
		{"/c http://x/", "SUBSCRIPTION_NOT_FOUND: there is no subscription with this id", 1},
		{"/a http://x/ --api 127.0.0.1:1", "no answer from http://127.0.0.1:1 (--api or REVEILLE_API_ADDR): ", 1},
		{"/a http://x/ --api x", `--api "x": expected host:port or http://host:port`, 2},
		{"a http://x/", `the pattern "a" must be a path such as '/agents/*'`, 2},
		{"/a?b http://x/", "must be a path", 2},
		{"/a", "usage: reveille subscribe [flags] PATTERN URL", 2},
	} {
		status, out, errs := call("", append([]string{"subscribe", "--api", server.URL}, strings.Fields(c.line)...)...)
		if status != c.status || out != "" || !strings.Contains(errs, c.says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, %q, %q, want %q", c.line, status, out, errs, c.says)
		}
	}
}

func TestUnsubscribe(t *testing.T) {
	const shown = `{"subscription_id":"a b"}`
	port := &apiPort{answers: map[string]string{
		"GET /**?subscription=a+b": shown, "DELETE /**?subscription=a+b": "",
	}}
	server := httptest.NewServer(port)
	defer server.Close()
	for output, want := range map[string]string{"text": "a b is deleted, with its consumers\n", "json": shown} {
		port.got = nil
		status, out, errs := call("", "unsubscribe", "a b", "--api", server.URL, "--output", output)
		if status != 0 || errs != "" || out != want || len(port.got) != 2 {
			t.Errorf("%s: status %d, %q, %q, asked for %q", output, status, out, errs, port.got)
		}
	}
	status, out, errs := call("", "unsubscribe", "none", "--api", server.URL)
	if status != 1 || out != "" || !strings.Contains(errs, "SUBSCRIPTION_NOT_FOUND") {
		t.Errorf("of none: status %d, %q, %q", status, out, errs)
	}
}

// TestAnIDIsMadeOfThePattern holds that it is always one that the API takes.
func TestAnIDIsMadeOfThePattern(t *testing.T) {
	for pattern, want := range map[string]string{
		"/agents/*": "agents", "/agents/**": "agents", "/agents/*/inbox": "agents-inbox", "/**": "all", "/": "all",
		"/a%20b/ü/c.d": "a-20b-c.d", "/*/-/": "all", "/" + strings.Repeat("x", 59) + "/y": strings.Repeat("x", 59),
	} {
		if got := idOf(pattern, ""); got != want || fsm.ValidateSubscriptionID(got) != nil {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
		if got := idOf(pattern, "push"); got != want+"-push" {
			t.Errorf("%s, pushed: %q", pattern, got)
		}
	}
}
